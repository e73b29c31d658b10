#include "convert/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr double kLowFrequencyFactor = 1;  // the value in all Llama 3 models
constexpr double kHighFrequencyFactor = 4;
constexpr double kDefaultTheta = 10000;

// The divisor of a pair's inverse frequency in Llama 3's RoPE scaling.
double llama3_divisor(double wavelength, double factor, double context) {
  if (wavelength < context / kHighFrequencyFactor) return 1;
  if (wavelength > context / kLowFrequencyFactor) return factor;
  const double smooth =
      (context / wavelength - kLowFrequencyFactor) / (kHighFrequencyFactor - kLowFrequencyFactor);
  return 1 / ((1 - smooth) / factor + smooth);
}

bool follows_llama3(const std::vector<float>& divisors, double theta, double factor,
                    double context) {
  constexpr double kTolerance = 1e-4;  // because divisors were computed in f32
  const double head_dim = 2 * static_cast<double>(divisors.size());
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(theta, 2 * static_cast<double>(i) / head_dim);
    const double want = llama3_divisor(wavelength, factor, context);
    if (!(std::fabs(static_cast<double>(divisors[i]) - want) <= kTolerance * want)) return false;
  }
  return true;
}

// The tensor contains only the divisors; factor and original context are reconstructed from them.
Json scaling_of_divisors(const SourceTensor& tensor, const GgufSource& source, double theta) {
  require(tensor.shape.size() == 1 && tensor.shape[0] <= 4096, tensor.place,
          ": tensor rope_freqs.weight has shape ", shape_text(tensor.shape),
          ", expected one number for each pair of columns");
  std::vector<float> divisors(static_cast<std::size_t>(tensor.shape[0]));
  source.read(tensor, 0, divisors);
  const double factor = static_cast<double>(*std::ranges::max_element(divisors));
  if (factor == 1 && std::ranges::all_of(divisors, [](float x) { return x == 1; })) return {};
  for (std::int64_t context = 1024; context <= 1 << 20; context *= 2) {
    if (!follows_llama3(divisors, theta, factor, static_cast<double>(context))) continue;
    return {{"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", kLowFrequencyFactor},
            {"high_freq_factor", kHighFrequencyFactor},
            {"original_max_position_embeddings", context}};
  }
  fail(tensor.place,
       ": tensor rope_freqs.weight does not follow the rule of Llama 3, the only one "
       "that is supported as a tensor");
}

Json yarn_of(const GgufMetadata& metadata, const std::string& prefix, double factor) {
  Json scaling = {{"rope_type", "yarn"}, {"factor", factor}};
  const auto original = metadata.integer(prefix + "original_context_length");
  require(original.has_value(), metadata.source(), ": key ", prefix,
          "original_context_length is missing, which yarn needs");
  scaling["original_max_position_embeddings"] = *original;
  if (const auto fast = metadata.number(prefix + "yarn_beta_fast")) scaling["beta_fast"] = *fast;
  if (const auto slow = metadata.number(prefix + "yarn_beta_slow")) scaling["beta_slow"] = *slow;
  // llama.cpp's attention factor, which multiplies yarn's own 1 + 0.1 ln(factor).
  const double attention = metadata.number(prefix + "attn_factor")
                               .value_or(metadata.number(prefix + "yarn_attn_factor").value_or(1));
  if (attention != 1) scaling["attention_factor"] = attention * (1 + 0.1 * std::log(factor));
  const double extrapolation = metadata.number(prefix + "yarn_ext_factor").value_or(1);
  require(extrapolation == 1 || extrapolation == -1, metadata.source(), ": key ", prefix,
          "yarn_ext_factor has a value that is not supported");
  // If this key is present, llama.cpp uses an mscale of 1.
  const double multiplier = metadata.number(prefix + "yarn_log_multiplier").value_or(0);
  if (multiplier != 0) scaling["mscale"] = 1.0, scaling["mscale_all_dim"] = multiplier;
  return scaling;
}

// Ministral 3's query temperature, which increases with the position.
void add_temperature(const GgufMetadata& metadata, const std::string& architecture, Json& scaling) {
  const std::string prefix = architecture + "attention.temperature_";
  const double beta = metadata.number(prefix + "scale").value_or(0);
  if (beta == 0) return;
  const auto original = scaling["original_max_position_embeddings"].get<std::int64_t>();
  const std::int64_t length = metadata.integer(prefix + "length").value_or(original);
  require(length == original, metadata.source(), ": key ", prefix, "length is ", length,
          ", the original context ", original, ": expected the same");
  scaling["llama_4_scaling_beta"] = beta;
}

}  // namespace

void read_gguf_rope(const GgufSource& source, const std::string& architecture, Json& config) {
  const GgufMetadata& metadata = source.metadata();
  const double theta = metadata.number(architecture + "rope.freq_base").value_or(kDefaultTheta);
  config["rope_theta"] = theta;
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    const SourceTensor* tensor = source.find(name);
    require(tensor == nullptr, tensor == nullptr ? "" : tensor->place, ": tensor ", name,
            ": LongRoPE is not supported");
  }
  const std::string prefix = architecture + "rope.scaling.";
  std::string_view type = metadata.text(prefix + "type").value_or("none");
  double factor = metadata.number(prefix + "factor").value_or(1);
  // Older files have only this key for linear scaling instead of rope.scaling.*.
  if (const auto linear = metadata.number(architecture + "rope.scale_linear")) {
    if (!metadata.has(prefix + "type") && *linear != 1) type = "linear", factor = *linear;
  }
  const SourceTensor* divisors = source.find("rope_freqs.weight");
  require(type == "none" || divisors == nullptr, metadata.source(), ": key ", prefix, "type ",
          printable(type), " beside a tensor rope_freqs.weight is not supported");
  require(type == "none" || type == "linear" || type == "yarn", metadata.source(), ": key ", prefix,
          "type: ", printable(type), " is not supported; supported are none, linear and yarn");
  if (type == "linear" && factor != 1) {
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  } else if (type == "yarn") {
    Json scaling = yarn_of(metadata, prefix, factor);
    add_temperature(metadata, architecture, scaling);
    config["rope_scaling"] = std::move(scaling);
  } else if (divisors != nullptr) {
    const Json scaling = scaling_of_divisors(*divisors, source, theta);
    if (!scaling.is_null()) config["rope_scaling"] = scaling;
  }
}

}  // namespace leq
