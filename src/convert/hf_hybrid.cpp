#include "convert/hf_hybrid.h"

#include <cmath>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

std::vector<bool> recurrent_layers(const Json& json, const DeltaKeys& keys, std::int64_t layers,
                                   std::string_view source) {
  std::vector<bool> recurrent;
  if (json.find_given("layer_types") != nullptr) {
    for (const Json& type : json["layer_types"]) recurrent.push_back(type == "linear_attention");
    return recurrent;
  }
  const auto interval = json_get_or<std::int64_t>(json, keys.interval, 4, source);
  require(interval >= 1, source, ": ", keys.interval, " = ", interval, ": expected at least 1");
  for (std::int64_t i = 0; i < layers; ++i) recurrent.push_back((i + 1) % interval != 0);
  return recurrent;
}

}  // namespace

std::int32_t rotary_dims_of(const Json& json, const Family& family, std::int64_t head_dim,
                            std::string_view source) {
  if (!family.reads_partial_rotary) return 0;
  constexpr const char* kFactor = "partial_rotary_factor";
  double factor = json_get_or<double>(json, kFactor, family.partial_rotary, source);
  if (json.find_given("rope_parameters") != nullptr && json["rope_parameters"].is_object()) {
    factor = json_get_or<double>(json["rope_parameters"], kFactor, factor, source);
  }
  require(std::isfinite(factor) && factor > 0 && factor <= 1, source, ": ", kFactor, " = ", factor,
          ": expected above 0, at most 1");
  const auto dims = static_cast<std::int32_t>(static_cast<double>(head_dim) * factor);
  require(dims >= 2 && dims % 2 == 0, source, ": ", kFactor, " = ", factor, " of heads of ",
          head_dim, ": expected an even count of numbers");
  return dims == head_dim ? 0 : dims;
}

void read_delta_layers(const Json& json, const Family& family, std::string_view source,
                       ModelConfig& config) {
  if (family.delta == nullptr) return;
  const DeltaKeys& keys = *family.delta;
  const auto recurrent = recurrent_layers(json, keys, config.layer_count(), source);
  DeltaNetConfig delta;
  delta.key_heads = json_get<std::int64_t>(json, keys.key_heads, source);
  delta.value_heads = json_get<std::int64_t>(json, keys.value_heads, source);
  delta.key_dim = json_get<std::int64_t>(json, keys.key_dim, source);
  delta.value_dim = json_get<std::int64_t>(json, keys.value_dim, source);
  delta.conv_taps = json_get_or<std::int64_t>(json, keys.taps, 4, source);
  for (std::size_t i = 0; i < recurrent.size(); ++i) {
    if (recurrent[i]) config.layers[i].mixer = delta;
  }
}

}  // namespace leq
