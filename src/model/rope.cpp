#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text.h"

namespace leq {
namespace {

// 1 / base^(2i/d). The exponent and the power are each rounded to f32 (docs/numerics.md).
std::vector<float> plain_frequencies(std::int64_t head_dim, double base) {
  std::vector<float> inv_freq;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    inv_freq.push_back(1.0f / static_cast<float>(std::pow(base, static_cast<double>(exponent))));
  }
  return inv_freq;
}

void scale_linear(std::vector<float>& inv_freq, const RopeScaling& scaling) {
  for (float& f : inv_freq) f /= static_cast<float>(scaling.factor);
}

// Divides low frequencies by the factor, keeps high ones, and blends the frequencies between.
void scale_llama3(std::vector<float>& inv_freq, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto span = static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  const auto original = static_cast<float>(scaling.original_context);
  const double context = static_cast<double>(scaling.original_context);
  const auto low_wavelength = static_cast<float>(context / scaling.low_freq_factor);
  const auto high_wavelength = static_cast<float>(context / scaling.high_freq_factor);
  for (float& f : inv_freq) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / f;
    const float slow = wavelength > low_wavelength ? f / factor : f;
    const float smooth = (original / wavelength - low) / span;
    const float blend = (1.0f - smooth) * slow / factor + smooth * slow;
    const bool medium = !(wavelength < high_wavelength) && !(wavelength > low_wavelength);
    f = medium ? blend : slow;
  }
}

double yarn_mscale(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

// YaRN (Peng et al. 2023): keeps high frequencies, divides low ones, with a linear ramp between.
float scale_yarn(std::vector<float>& inv_freq, const ModelConfig& config, const RopeConfig& rope) {
  const RopeScaling& scaling = rope.scaling;
  const std::int64_t dims = config.rope_dims(rope);
  const auto dim = static_cast<double>(dims);
  const auto original =
      static_cast<double>(scaling.original_context > 0 ? scaling.original_context : config.context);
  const auto correction = [&](double rotations) {
    return dim * std::log(original / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  const RopeScaling usual;
  double low = correction(scaling.beta_fast > 0 ? scaling.beta_fast : usual.beta_fast);
  double high = correction(scaling.beta_slow > 0 ? scaling.beta_slow : usual.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
    const float power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    const float extrapolated = 1.0f / power;
    const float interpolated = 1.0f / (static_cast<float>(scaling.factor) * power);
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float keep = 1.0f - ramp;
    inv_freq[i] = interpolated * (1.0f - keep) + extrapolated * keep;
  }
  if (scaling.attention_factor > 0) return static_cast<float>(scaling.attention_factor);
  if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) {
    return static_cast<float>(yarn_mscale(scaling.factor, scaling.mscale) /
                              yarn_mscale(scaling.factor, scaling.mscale_all_dim));
  }
  return static_cast<float>(yarn_mscale(scaling.factor, 1.0));
}

// LongRoPE (Ding et al. 2024): each frequency has its own divisor, for short and for long contexts.
float scale_longrope(std::vector<float>& inv_freq, const RopeScaling& scaling, double theta,
                     bool is_long) {
  const std::vector<double>& factors = is_long ? scaling.long_factor : scaling.short_factor;
  const auto dims = static_cast<float>(2 * inv_freq.size());
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / dims;
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    inv_freq[i] = 1.0f / (static_cast<float>(factors[i]) * power);
  }
  if (scaling.attention_factor > 0) return static_cast<float>(scaling.attention_factor);
  if (scaling.factor <= 1) return 1;
  const auto original = static_cast<double>(scaling.original_context);
  return static_cast<float>(std::sqrt(1 + std::log(scaling.factor) / std::log(original)));
}

// Only the first pairs rotate, with the frequencies that they would have if all did.
void scale_proportional(std::vector<float>& inv_freq, const RopeScaling& scaling) {
  const auto pairs =
      static_cast<std::int64_t>(scaling.rotated * 2 * static_cast<double>(inv_freq.size())) / 2;
  std::fill(inv_freq.begin() + pairs, inv_freq.end(), 0.0f);
  scale_linear(inv_freq, scaling);
}

// NTK-aware base for the context in use ("dynamic" in Hugging Face's transformers).
double dynamic_base(const ModelConfig& config, const RopeConfig& rope, std::int64_t context) {
  const std::int64_t original = rope.scaling.original_context;
  const auto made_for = static_cast<double>(original > 0 ? original : config.context);
  const double length = std::max(static_cast<double>(context), made_for);
  const double factor = rope.scaling.factor;
  const auto dim = static_cast<double>(config.rope_dims(rope));
  return rope.theta * std::pow(factor * length / made_for - (factor - 1.0), dim / (dim - 2.0));
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, const RopeConfig& rope,
                                 std::int64_t context) {
  RopeFrequencies result;
  const RopeScaling& scaling = rope.scaling;
  const std::int64_t dims = config.rope_dims(rope);
  if (scaling.kind == RopeScalingKind::dynamic) {
    const double base = dynamic_base(config, rope, context);
    result.inv_freq = plain_frequencies(dims, base);
    result.note = "dynamic rope scaling: base " + fixed(base, 1) + ", fixed by the context of " +
                  std::to_string(context);
    return result;
  }
  result.inv_freq = plain_frequencies(dims, rope.theta);
  if (scaling.kind == RopeScalingKind::linear) scale_linear(result.inv_freq, scaling);
  if (scaling.kind == RopeScalingKind::proportional) scale_proportional(result.inv_freq, scaling);
  if (scaling.kind == RopeScalingKind::llama3) scale_llama3(result.inv_freq, scaling);
  if (scaling.kind == RopeScalingKind::yarn) {
    result.attention_factor = scale_yarn(result.inv_freq, config, rope);
  }
  if (scaling.kind == RopeScalingKind::longrope) {
    const bool is_long = context > scaling.original_context;
    result.attention_factor = scale_longrope(result.inv_freq, scaling, rope.theta, is_long);
    result.note = std::string("longrope scaling: factors of contexts ") +
                  (is_long ? "above " : "up to ") + std::to_string(scaling.original_context);
  }
  return result;
}

std::vector<float> query_factors(const ModelConfig& config, const AttentionConfig& attention,
                                 std::int64_t context) {
  const QueryTemperature& temperature = attention.temperature;
  std::vector<float> factors;
  if (temperature.period == 0) return factors;
  const double plain =
      attention.query_scale != 0
          ? attention.query_scale
          : 1.0 / std::sqrt(static_cast<double>(config.kv_heads_of(attention).dims));
  for (std::int64_t i = 0; i <= (context - 1) / temperature.period; ++i) {
    const double sharper = 1.0 + temperature.beta * std::log(1.0 + static_cast<double>(i));
    factors.push_back(static_cast<float>(plain * sharper));
  }
  return factors;
}

}  // namespace leq
