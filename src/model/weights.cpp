#include "model/weights.h"

#include <map>
#include <set>
#include <utility>

#include "backend/step_times.h"
#include "base/error.h"
#include "base/text.h"
#include "model/kv_layers.h"
#include "model/tensor_list.h"

namespace leq {
namespace {

// Binds tensors by name and checks their shapes against those that the configuration calls for.
class Binder {
 public:
  Binder(const TensorFinder& find, std::string_view source, const ModelConfig& config,
         DeviceMemory& memory)
      : find_(find), source_(source), config_(config), memory_(memory) {
    for (TensorSpec& spec : tensor_list(config)) shapes_[spec.name] = std::move(spec.shape);
  }

  Weights bind() {
    Weights& weights = weights_;
    weights.token_embedding = matrix("token_embedding");
    if (!config_.rotary) weights.position_embedding = matrix("position_embedding");
    for (std::int64_t i = 0; i < config_.layers; ++i) weights.blocks.push_back(block(i));
    weights.final_norm = norm("final_norm", config_.norm);
    weights.head = linear("head", {config_.tied ? "token_embedding" : "head"});
    return std::move(weights_);
  }

 private:
  Block block(std::int64_t i) {
    const auto at = [&](std::string_view part) { return layer_tensor(i, part); };
    Block block;
    block.attention_norm = norm(at("attention_norm"), config_.block_norm());
    block.qkv = linear(at("qkv"), {at("q"), at("k"), at("v")});
    place_key_centre(at("k") + ".bias", at(kKeyMean), block);
    if (config_.qk_norm) {
      block.q_norm = norm(at("q_norm"), config_.norm);
      block.k_norm = norm(at("k_norm"), config_.norm);
    }
    block.o = linear(at("o"), {at("o")});
    block.mlp_norm = norm(at("mlp_norm"), config_.block_norm());
    block.gate_up = config_.gated ? linear(at("gate_up"), {at("gate"), at("up")})
                                  : linear(at("up"), {at("up")});
    block.down = linear(at("down"), {at("down")});
    return block;
  }

  const StoredTensor& tensor(const std::string& name, const Shape& shape) {
    const StoredTensor* found = find_(name);
    require(found != nullptr, source_, ": tensor ", name, " is missing, which the configuration ",
            "calls for");
    require(found->shape == shape, source_, ": tensor ", name, ": expected shape ",
            shape_text(shape), ", file has ", shape_text(found->shape));
    return *found;
  }

  // A tied table, and what q, k and v share, goes to the device once.
  WeightView place(const WeightView& weight) {
    const auto [found, is_new] = placed_.try_emplace(weight.codes);
    if (is_new) found->second = memory_.place(weight, weights_.memory);
    return found->second;
  }

  WeightView matrix(const std::string& name) { return place(tensor(name, shapes_.at(name)).view); }

  const StoredTensor& stored_vector(const std::string& name, const Shape& shape) {
    const StoredTensor& found = tensor(name, shape);
    require(found.view.scheme.kind == CodeKind::f32, source_, ": tensor ", name,
            ": expected f32, file has ", scheme_name(found.view.scheme));
    return found;
  }

  const float* vector(const std::string& name, const Shape& shape) {
    return reinterpret_cast<const float*>(place(stored_vector(name, shape).view).codes);
  }

  // What is known of a layer's keys: their mean, where the file has it, else their bias, where the
  // configuration calls for one.
  void place_key_centre(const std::string& bias, const std::string& mean, Block& block) {
    const auto numbers = [](const WeightView& view) {
      const auto* first = reinterpret_cast<const float*>(view.codes);
      return std::vector<float>(first, first + view.columns);
    };
    const Shape shape = {config_.kv_heads * config_.head_dim};
    WeightView view;
    if (shapes_.contains(bias)) {
      view = stored_vector(bias, shape).view;
      block.key_bias = numbers(view);
    }
    if (!config_.qk_norm && find_(mean) != nullptr) view = stored_vector(mean, shape).view;
    if (view.codes == nullptr) return;
    block.key_centre = key_centre(config_, numbers(view));
    if (block.key_centre.empty()) return;
    view.codes = reinterpret_cast<const std::byte*>(block.key_centre.data());
    block.key_offset = reinterpret_cast<const float*>(place(view).codes);
  }

  // nullptr where the configuration calls for none.
  const float* bias(const std::string& of) {
    const auto found = shapes_.find(of + ".bias");
    return found == shapes_.end() ? nullptr : vector(found->first, found->second);
  }

  Norm norm(const std::string& name, NormKind kind) {
    const Shape& shape = shapes_.at(name);  // [width]
    return {kind, vector(name, shape), bias(name), config_.norm_eps, shape[0]};
  }

  Linear linear(const std::string& name, const std::vector<std::string>& parts) {
    Linear linear;
    linear.name = name;
    linear.inputs = shapes_.at(parts[0])[1];
    for (const std::string& part : parts) {
      LinearSegment& segment = linear.segments[static_cast<std::size_t>(linear.segment_count)];
      const Shape& shape = shapes_.at(part);  // [outputs][inputs]
      const StoredTensor& stored = tensor(part, shape);
      segment.weight = place(stored.view);
      segment.bias = bias(part);
      linear.outputs += shape[0];
      const std::string smooth = inv_smooth_tensor(part);
      const WeightView& first = linear.segments[0].weight;
      if (linear.segment_count++ == 0) {
        linear.act = stored.view.act;
        linear.act_scale = stored.act_scale;
        linear.online_mode = stored.online_mode;
        if (find_(smooth) != nullptr) linear.inv_smooth = vector(smooth, {linear.inputs});
        continue;
      }
      require(segment.weight.act == first.act && format(segment.weight) == format(first) &&
                  stored.act_scale == linear.act_scale && stored.online_mode == linear.online_mode,
              source_, ": tensors ", parts[0], " and ", part,
              " share their input but want it in different formats");
      require(find_(smooth) == nullptr, source_, ": tensor ", smooth, ": ", part,
              " shares its input, expected ", inv_smooth_tensor(parts[0]));
    }
    return linear;
  }

  // What decides the format of a linear's input beside act: whether it comes with sums of codes,
  // and over how many columns.
  static std::int64_t format(const WeightView& weight) {
    return weight.scheme.is_offset() ? sum_group(weight.scheme, weight.act, weight.columns) : 0;
  }

  const TensorFinder& find_;
  std::string_view source_;
  const ModelConfig& config_;
  DeviceMemory& memory_;
  std::map<std::string, Shape> shapes_;  // tensor_list's
  Weights weights_;
  std::map<const std::byte*, WeightView> placed_;
};

// Where weights are only looked at: views stay as they are, and nothing is taken.
class NoMemory final : public DeviceMemory {
 public:
  NoMemory() : DeviceMemory(1) {}
  std::optional<DeviceRoom> room() const override { return std::nullopt; }
  void plan(std::size_t, std::size_t) override {}
  WeightView place(const WeightView& weight, std::vector<Buffer>&) override { return weight; }
  UploadReport finish_placing() override { return {}; }
  void copy(std::byte*, const std::byte*, std::size_t) override {}
  void write(std::byte*, std::span<const std::byte>) override {}
  void read(const std::byte*, std::span<std::byte>) override {}

 private:
  std::byte* take(std::size_t) override { fail(ErrorKind::internal, "weights take memory"); }
  void give_back(std::byte*, std::size_t) noexcept override {}
};

}  // namespace

std::string layer_tensor(std::int64_t layer, std::string_view part) {
  return "layers." + std::to_string(layer) + "." + std::string(part);
}

std::string inv_smooth_tensor(std::string_view linear) {
  return std::string(linear) + ".inv_smooth";
}

std::uint64_t Weights::bytes_per_token() const {
  std::uint64_t bytes = moved_bytes(head);
  for (const Block& block : blocks) {
    for (const Linear* linear : {&block.qkv, &block.o, &block.gate_up, &block.down}) {
      bytes += moved_bytes(*linear);
    }
  }
  return bytes;
}

Weights bind_weights(const LeqReader& file, const ModelConfig& config, DeviceMemory& memory) {
  const auto find = [&](std::string_view name) { return file.find(name); };
  return bind_weights(find, file.name(), config, memory);
}

Weights bind_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     DeviceMemory& memory) {
  const std::size_t before = memory.allocated();
  Weights weights = Binder(find, source, config, memory).bind();
  weights.memory_bytes = memory.allocated() - before;
  weights.upload = memory.finish_placing();
  return weights;
}

void check_tensors(const LeqReader& file, const ModelConfig& config) {
  std::set<const StoredTensor*> used;
  const auto find = [&](std::string_view name) {
    const StoredTensor* found = file.find(name);
    used.insert(found);
    return found;
  };
  NoMemory memory;
  bind_weights(find, file.name(), config, memory);
  for (const StoredTensor& tensor : file.tensors()) {
    require(used.contains(&tensor), file.name(), ": tensor ", printable(tensor.name), " ",
            shape_text(tensor.shape), " has no place in a model of this configuration; the file ",
            "was changed, convert the model again");
  }
}

}  // namespace leq
