#include "quantize/pipeline/block_run.h"

#include <algorithm>
#include <map>
#include <string>

#include "backend/counting_memory.h"
#include "base/error.h"
#include "model/memory_plan.h"

namespace leq {
namespace {

ModelConfig one_block(ModelConfig config, std::int64_t layer) {
  config.layers = {config.layer(layer)};
  config.mtp.reset();
  config.vocab = 1;
  config.tied = true;
  if (config.learned_positions) config.context = 1;  // only a placeholder row
  return config;
}

KvShape cache_shape(const ModelConfig& config, std::int64_t length) {
  return {1,
          static_cast<int>(config.kv_heads),
          static_cast<int>(config.head_dim),
          kExactKv,
          kExactKv,
          length,
          1};
}

// Fixed states for a single sequence without checkpoints.
std::unique_ptr<FixedStates> block_states(DeviceMemory& memory, const ModelConfig& config) {
  RunLimits limits;
  limits.kept_states = 0;
  return make_fixed_states(memory, config, limits, place_of(config, 0, 1).own());
}

ForwardLimits forward_limits_of(std::int64_t length) { return {length, 1, length}; }

StoredTensor stored(const std::string& name, const Shape& shape, const std::vector<float>& values) {
  StoredTensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.view.rows = shape.size() == 2 ? shape[0] : 1;
  tensor.view.columns = shape.back();
  tensor.view.codes = reinterpret_cast<const std::byte*>(values.data());
  return tensor;
}

TensorFinder finder(const std::map<std::string, StoredTensor, std::less<>>& tensors) {
  return [&tensors](std::string_view name) -> const StoredTensor* {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  };
}

}  // namespace

BlockRun::BlockRun(const ModelConfig& config, std::int64_t layer, const BlockTensors& block,
                   Backend& backend, std::int64_t length)
    : zeros_(static_cast<std::size_t>(config.width)),
      config_(one_block(config, layer)),
      sites_(linear_sites(config_, 0)),
      weights_(bind(block, backend)),
      cache_(backend.memory(), backend.layout(), cache_shape(config_, length)),
      states_(block_states(backend.memory(), config_)),
      transformer_(config_, weights_, backend, forward_limits_of(length)) {}

Weights BlockRun::bind(const BlockTensors& block, Backend& backend) {
  std::map<std::string, Shape> shapes;
  for (const TensorSpec& spec : layer_tensors(config_, 0)) shapes[spec.name] = spec.shape;
  for (const auto& [part, matrix] : block.parts) {
    const auto known = shapes.find(part);  // absent: inv_smooth or key_mean
    const std::string name = layer_tensor(0, part);
    const Shape shape = known != shapes.end() ? known->second : Shape{matrix.columns};
    tensors_[name] = stored(name, shape, matrix.values);
  }
  for (const char* name : {"token_embedding", "position_embedding"}) {
    tensors_[name] = stored(name, {1, config_.width}, zeros_);
  }
  for (const char* name : {"final_norm", "final_norm.bias"}) {
    tensors_[name] = stored(name, {config_.width}, zeros_);
  }
  return bind_weights(finder(tensors_), "block", config_, backend.memory());
}

bool BlockRun::run(Sublayer which, std::span<float> hidden, Observer* observer) {
  transformer_.observe(observer);
  return transformer_.run_sublayer(which, 0, hidden, {cache_, states_.get()});
}

std::uint64_t BlockRun::bytes(const ModelConfig& config, std::int64_t layer, const Layout& layout,
                              std::int64_t length) {
  const ModelConfig one = one_block(config, layer);
  // Placeholder weights are used, because only their sizes matter here; all linears read f32 rows.
  std::map<std::string, StoredTensor, std::less<>> tensors;
  std::vector<float> zeros;
  for (const TensorSpec& spec : tensor_list(one)) {
    if (spec.shape.size() == 1) {
      zeros.resize(std::max(zeros.size(), static_cast<std::size_t>(spec.shape[0])));
    }
  }
  for (const TensorSpec& spec : tensor_list(one)) {
    tensors[spec.name] = stored(spec.name, spec.shape, zeros);
  }
  CountingMemory of_weights(layout), memory(layout);
  const Weights weights = bind_weights(finder(tensors), "block", one, of_weights);
  const KvCache cache(memory, layout, cache_shape(one, length));
  const auto states = block_states(memory, one);
  const Workspace work(one, weights, memory, layout, forward_limits_of(length),
                       place_of(one, 0, 1));
  return memory.allocated();
}

}  // namespace leq
