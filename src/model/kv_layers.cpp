#include "model/kv_layers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <utility>

#include "model/rope.h"

namespace leq {

namespace {

// e^(i j f) for the frequency f of each pair of channels, averaged over the model's positions j.
std::vector<std::complex<double>> mean_rotations(const ModelConfig& config,
                                                 std::span<const float> frequencies) {
  const auto positions = static_cast<double>(config.context);
  std::vector<std::complex<double>> rotations;
  for (const float frequency : frequencies) {
    const double half = 0.5 * static_cast<double>(frequency);
    const double step = std::sin(half);
    const double size = step == 0 ? 1.0 : std::sin(positions * half) / (positions * step);
    rotations.push_back(size * std::polar(1.0, (positions - 1) * half));
  }
  return rotations;
}

// Largest distance of a unit vector rotated by up to `angle` from their mean, of norm `size`.
float distance_from_mean(double angle, double size) {
  constexpr double kPi = 3.14159265358979323846;
  if (angle > 2 * kPi) return static_cast<float>(1 + size);
  return static_cast<float>(std::abs(1.0 - std::polar(size, angle / 2)));
}

// The part of each channel's bias [kv_heads d] that codes must cover: for codes along tokens, the
// rest after the centre is subtracted; for codes along channels, its change by RoPE in a block.
std::vector<float> spanned_parts(const ModelConfig& config, const AttentionConfig& attention,
                                 const KvScheme& scheme) {
  const KvHeads heads = config.kv_heads_of(attention);
  const auto count = static_cast<std::size_t>(heads.count * heads.dims);
  const std::vector<float> frequencies =
      rope_frequencies(config, *attention.rope, config.context).inv_freq;
  const std::size_t half = frequencies.size();
  const bool from_centre = !scheme.blocked() && !attention.qk_norm;
  // The part for channels that RoPE does not rotate, which have a constant bias.
  const float still = scheme.blocked() || from_centre ? 0.0f : 1.0f;
  std::vector<float> parts(static_cast<std::size_t>(heads.dims), still);
  const auto rotations = mean_rotations(config, frequencies);
  for (std::size_t i = 0; i < half; ++i) {
    float part = 1.0f;
    if (scheme.blocked()) {
      part = std::min(2.0f, static_cast<float>(scheme.block) * frequencies[i]);
    } else if (from_centre) {
      const double angle =
          static_cast<double>(config.context - 1) * static_cast<double>(frequencies[i]);
      part = distance_from_mean(angle, std::abs(rotations[i]));
    }
    parts[i] = parts[i + half] = part;
  }
  std::vector<float> all;
  while (all.size() < count) all.insert(all.end(), parts.begin(), parts.end());
  return all;
}

}  // namespace

std::vector<float> key_centre(const ModelConfig& config, const AttentionConfig& attention,
                              std::span<const float> common) {
  const bool nothing = std::ranges::all_of(common, [](float k) { return k == 0; });
  if (nothing || attention.qk_norm) return {};
  std::vector<float> centre(common.begin(), common.end());
  if (!attention.rope) return centre;
  const RopeFrequencies rope = rope_frequencies(config, *attention.rope, config.context);
  const auto rotations = mean_rotations(config, rope.inv_freq);
  const std::size_t half = rotations.size();
  const auto dims = static_cast<std::size_t>(config.kv_heads_of(attention).dims);
  for (std::size_t head = 0; head < common.size(); head += dims) {
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t first = head + i, second = head + half + i;
      const std::complex<double> mean = static_cast<double>(rope.attention_factor) * rotations[i] *
                                        std::complex<double>(static_cast<double>(common[first]),
                                                             static_cast<double>(common[second]));
      centre[first] = static_cast<float>(mean.real());
      centre[second] = static_cast<float>(mean.imag());
    }
  }
  return centre;
}

bool keys_are_centred(KvType type) { return kv_scheme(type).keys == KvAlong::token; }

std::uint32_t key_centre_check(const Weights& weights, std::span<const KvType> wanted) {
  if (std::ranges::none_of(wanted, keys_are_centred)) return 0;
  std::uint32_t hash = 0;
  for (const LayerWeights& layer : weights.layers) {
    const auto* attention = std::get_if<AttentionWeights>(&layer.mixer);
    if (attention == nullptr) continue;
    for (const float c : attention->key_centre)
      hash = (hash ^ std::bit_cast<std::uint32_t>(c)) * 16777619u;
  }
  return hash;
}

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

void widen_keys(const ModelConfig& config, const Weights& weights, std::span<KvType> types) {
  struct Parts {
    KvType type;
    bool qk_norm;
    RopeConfig rope;
    std::vector<float> parts;
  };
  std::vector<Parts> known;
  const std::vector<std::int64_t> layers = config.cache_layers();
  for (std::size_t i = 0; i < types.size(); ++i) {
    const auto layer = static_cast<std::size_t>(layers[i]);
    const AttentionConfig& attention = *config.layers[layer].attention();
    if (!attention.rope) continue;
    // Skips layers without RoPE, because a channel's bias is constant in them.
    const KvScheme& scheme = kv_scheme(types[i]);
    if (!scheme.coded()) continue;
    auto found = std::ranges::find_if(known, [&](const Parts& one) {
      return one.type == scheme.type && one.qk_norm == attention.qk_norm &&
             one.rope == *attention.rope;
    });
    if (found == known.end()) {
      found = known.insert(found, {scheme.type, attention.qk_norm, *attention.rope,
                                   spanned_parts(config, attention, scheme)});
    }
    const std::vector<float>& bias = weights.layers[layer].attention().key_bias;
    if (large_key_bias(bias, found->parts)) types[i] = kUsualKv;
  }
}

}  // namespace leq
