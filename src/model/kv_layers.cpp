#include "model/kv_layers.h"

#include <algorithm>
#include <cmath>

namespace leq {

bool large_key_bias(std::span<const float> bias) {
  constexpr float kTimes = 8.0f;
  if (bias.empty()) return false;
  std::vector<float> sizes;
  for (const float b : bias) sizes.push_back(std::abs(b));
  const auto middle = sizes.begin() + std::ssize(sizes) / 2;
  std::ranges::nth_element(sizes, middle);
  return std::ranges::max(sizes) > kTimes * std::max(1.0f, *middle);
}

std::vector<KvType> layer_key_types(const ModelConfig& config, const Weights& weights,
                                    KvType wanted) {
  if (!config.rotary || !kv_packed(wanted)) return {};
  std::vector<KvType> types;
  bool differs = false;
  for (const Block& block : weights.blocks) {
    const float* bias = block.qkv.segments[1].bias;
    const auto count = static_cast<std::size_t>(config.kv_heads * config.head_dim);
    const bool large = bias != nullptr && large_key_bias({bias, count});
    types.push_back(large ? kUsualKv : wanted);
    differs = differs || large;
  }
  return differs ? types : std::vector<KvType>();
}

}  // namespace leq
