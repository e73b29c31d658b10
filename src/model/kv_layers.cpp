#include "model/kv_layers.h"

#include <algorithm>
#include <cmath>

#include "model/rope.h"

namespace leq {

namespace {

// What codes have to span of the bias of each channel: all of it along tokens, how far it turns
// within a block along channels. [kv_heads d]
std::vector<float> spanned_parts(const ModelConfig& config, const KvScheme& scheme) {
  const auto count = static_cast<std::size_t>(config.kv_heads * config.head_dim);
  std::vector<float> parts(count, 1.0f);
  if (!scheme.blocked()) return parts;
  const auto half = static_cast<std::size_t>(config.head_dim / 2);
  const std::vector<float> frequencies =
      rope_frequencies(config, std::min<std::int64_t>(config.context, kPageTokens)).inv_freq;
  for (std::size_t c = 0; c < count; ++c) {
    parts[c] = std::min(2.0f, static_cast<float>(scheme.block) * frequencies[c % half]);
  }
  return parts;
}

}  // namespace

bool large_key_bias(std::span<const float> bias, std::span<const float> parts) {
  constexpr float kTimes = 8.0f;
  if (bias.empty()) return false;
  std::vector<float> sizes;
  float largest = 0;
  for (std::size_t c = 0; c < bias.size(); ++c) {
    sizes.push_back(std::abs(bias[c]));
    largest = std::max(largest, sizes.back() * parts[c]);
  }
  const auto middle = sizes.begin() + std::ssize(sizes) / 2;
  std::ranges::nth_element(sizes, middle);
  return largest > kTimes * std::max(1.0f, *middle);
}

std::vector<KvType> layer_key_types(const ModelConfig& config, const Weights& weights,
                                    KvType wanted) {
  if (!config.rotary || !kv_packed(wanted)) return {};
  const std::vector<float> parts = spanned_parts(config, kv_scheme(wanted));
  std::vector<KvType> types;
  bool differs = false;
  for (const Block& block : weights.blocks) {
    const float* bias = block.qkv.segments[1].bias;
    const bool large = bias != nullptr && large_key_bias({bias, parts.size()}, parts);
    types.push_back(large ? kUsualKv : wanted);
    differs = differs || large;
  }
  return differs ? types : std::vector<KvType>();
}

}  // namespace leq
