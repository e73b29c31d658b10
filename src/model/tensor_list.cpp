#include "model/tensor_list.h"

#include <functional>
#include <numeric>
#include <utility>

#include "model/weights.h"

namespace leq {
namespace {

class List {
 public:
  explicit List(const ModelConfig& config) : config_(config) {}

  std::vector<TensorSpec> build() {
    const std::int64_t width = config_.width;
    add("token_embedding", {config_.vocab, width}, TensorRole::token_embedding);
    if (!config_.rotary) {
      add("position_embedding", {config_.context, width}, TensorRole::position_embedding);
    }
    for (std::int64_t i = 0; i < config_.layers; ++i) layer(i);
    norm("final_norm", width, config_.norm);
    if (!config_.tied) add("head", {config_.vocab, width}, TensorRole::head);
    return std::move(specs_);
  }

 private:
  void layer(std::int64_t i) {
    const auto at = [&](std::string_view part) { return layer_tensor(i, part); };
    const std::int64_t query = config_.heads * config_.head_dim;
    const std::int64_t key = config_.kv_heads * config_.head_dim;
    norm(at("attention_norm"), config_.width, config_.block_norm());
    linear(at("q"), query, config_.width, TensorRole::qkv, config_.qkv_bias);
    linear(at("k"), key, config_.width, TensorRole::qkv, config_.qkv_bias);
    linear(at("v"), key, config_.width, TensorRole::qkv, config_.qkv_bias);
    if (config_.qk_norm) {
      norm(at("q_norm"), config_.head_dim, config_.norm);
      norm(at("k_norm"), config_.head_dim, config_.norm);
    }
    linear(at("o"), config_.width, query, TensorRole::o, config_.output_bias);
    norm(at("mlp_norm"), config_.width, config_.block_norm());
    if (config_.gated) {
      linear(at("gate"), config_.hidden, config_.width, TensorRole::gate_up, config_.mlp_bias);
    }
    linear(at("up"), config_.hidden, config_.width, TensorRole::gate_up, config_.mlp_bias);
    linear(at("down"), config_.width, config_.hidden, TensorRole::down, config_.mlp_bias);
  }

  void add(const std::string& name, Shape shape, TensorRole role) {
    specs_.push_back({name, std::move(shape), role});
  }
  void norm(const std::string& name, std::int64_t width, NormKind kind) {
    add(name, {width}, TensorRole::vector);
    if (kind == NormKind::layer) add(name + ".bias", {width}, TensorRole::vector);
  }
  void linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, TensorRole role,
              bool biased) {
    add(name, {outputs, inputs}, role);
    if (biased) add(name + ".bias", {outputs}, TensorRole::vector);
  }

  const ModelConfig& config_;
  std::vector<TensorSpec> specs_;
};

std::int64_t parameters(const TensorSpec& spec) {
  return std::accumulate(spec.shape.begin(), spec.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

}  // namespace

std::vector<TensorSpec> tensor_list(const ModelConfig& config) { return List(config).build(); }

bool is_block_linear(TensorRole role) {
  return role == TensorRole::qkv || role == TensorRole::o || role == TensorRole::gate_up ||
         role == TensorRole::down;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const TensorSpec& spec : tensor_list(config)) count += parameters(spec);
  return count;
}

std::int64_t block_linear_parameters(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const TensorSpec& spec : tensor_list(config)) {
    if (is_block_linear(spec.role)) count += parameters(spec);
  }
  return count;
}

}  // namespace leq
