// A file's tensors and tables, and the facts that converters to other formats need.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "capi/internal.h"
#include "families/family.h"
#include "model/linear_sites.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "tensor/pack.h"

namespace leq::capi {
namespace {

const WeightView& tensor_of(const leq_model* handle, const char* name) {
  const LeqReader& file = model_of(handle).file().file();
  require_use(name != nullptr, "name is NULL");
  const StoredTensor* tensor = file.find(name);
  require(tensor != nullptr, file.name(), ": no tensor ", printable(name));
  return tensor->view;
}

void require_count(std::size_t given, std::int64_t expected, const char* name) {
  if (given == static_cast<std::size_t>(expected)) return;
  misuse(std::string(name) + " " + std::to_string(given) + ": expected " +
         std::to_string(expected));
}

// Each value in one byte, signed or unsigned as the scheme is.
void copy_codes(const WeightView& weight, std::uint8_t* codes, float* scales, std::uint8_t* zeros) {
  const QuantScheme& scheme = weight.scheme;
  const std::int64_t block = scheme.scaling == Scaling::group ? scheme.group : weight.columns;
  std::vector<std::int16_t> row_codes(static_cast<std::size_t>(weight.columns));
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    read_row_codes(weight, row, row_codes);
    codes = std::ranges::transform(row_codes, codes, [](std::int16_t code) {
              return static_cast<std::uint8_t>(code);
            }).out;
    for (std::int64_t column = 0; column < weight.columns; column += block) {
      *scales++ = scale_at(weight, row, column);
      if (zeros != nullptr) *zeros++ = static_cast<std::uint8_t>(zero_at(weight, row, column));
    }
  }
}

Json key_or_null(const char* key) { return key != nullptr ? Json(key) : Json(); }

constexpr std::array kWindowRules = {"none", "named", "all_layers", "upper_layers", "switched"};

Json keys_json(const Family& family) {
  Json json = Json::object();
  const ConfigKeys& keys = family.keys;
  const std::array<std::pair<const char*, const char*>, 12> members = {
      {{"width", keys.width},
       {"layers", keys.layers},
       {"heads", keys.heads},
       {"kv_heads", keys.kv_heads},
       {"head_dim", keys.head_dim},
       {"hidden", keys.hidden},
       {"vocab", keys.vocab},
       {"context", keys.context},
       {"norm_eps", keys.norm_eps},
       {"activation", keys.activation},
       {"attention_bias", family.attention_bias_key},
       {"mlp_bias", family.mlp_bias_key}}};
  for (const auto& [name, key] : members) json[name] = key_or_null(key);
  if (family.delta != nullptr) {
    json["delta"] = {{"key_heads", family.delta->key_heads},
                     {"value_heads", family.delta->value_heads},
                     {"key_dim", family.delta->key_dim},
                     {"value_dim", family.delta->value_dim},
                     {"conv_taps", family.delta->taps}};
  }
  if (family.experts) {
    json["experts"] = {{"experts", family.experts->experts},
                       {"active", family.experts->active},
                       {"hidden", family.experts->hidden},
                       {"normalized", key_or_null(family.experts->normalized)},
                       {"sparse_step", key_or_null(family.experts->sparse_step)},
                       {"dense_layers", key_or_null(family.experts->dense_layers)},
                       {"shared_hidden", key_or_null(family.experts->shared_hidden)}};
  }
  return json;
}

Json rule_json(const TensorRule& rule, const ModelConfig& config, std::int64_t rows) {
  const TensorLayout& layout = rule.layout;
  Json json = {{"transposed", layout.transposed}, {"part", layout.part},
               {"parts", layout.parts},           {"interleaved", layout.interleaved},
               {"stacked", layout.stacked},       {"added", rule.transform.added},
               {"taps_first", layout.taps_first}};
  if (layout.order == nullptr) return json;
  json["stored_rows"] = layout.order->stored_rows(config);
  json["rows"] = Json::array();
  for (std::int64_t row = 0; row < rows; ++row)
    json["rows"].push_back(layout.order->row(config, row));
  return json;
}

// "layers.3.experts.17.up" as "layers.{}.experts.{}.up" and its numbers.
std::pair<std::string, std::vector<std::string>> pattern_of(const std::string& name) {
  std::pair<std::string, std::vector<std::string>> found;
  for (const std::string_view part : split(name, ".")) {
    const bool number = parse_int(part).has_value();
    if (number) found.second.emplace_back(part);
    found.first += (found.first.empty() ? "" : ".") + (number ? "{}" : std::string(part));
  }
  return found;
}

// The tensor's name in a checkpoint of the family, and its rule in `rules`, by its pattern.
void add_place(const Family& family, const ModelConfig& config, const TensorSpec& spec, Json& entry,
               Json& rules) {
  const auto [pattern, numbers] = pattern_of(spec.name);
  entry["rule"] = pattern;
  if (pattern == "head") {
    if (!rules.contains(pattern)) rules[pattern] = rule_json({}, config, 0);
    entry["source"] = family.head;
    return;
  }
  const auto rule = std::ranges::find(family.tensors, pattern, &TensorRule::leq);
  ensure(rule != family.tensors.end(), "family ", family.name, " has no tensor ", pattern);
  std::string source(rule->source);
  for (const std::string& number : numbers) {
    if (const auto at = source.find("{}"); at != std::string::npos) source.replace(at, 2, number);
  }
  entry["source"] = std::string(family.prefixes.front()) + source;
  if (rule->layout.stacked) entry["expert"] = parse_int(numbers.at(1)).value();
  if (!rules.contains(pattern)) rules[pattern] = rule_json(*rule, config, spec.shape.front());
}

// The first linear of each linear's site, whose smoothing vector applies to all of them.
std::map<std::string, std::string> site_leaders(const ModelConfig& config) {
  std::map<std::string, std::string> leaders;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (const LinearSite& site : linear_sites(config, layer)) {
      for (const LinearSpec& linear : site.weights) {
        leaders[layer_tensor(layer, linear.name)] = layer_tensor(layer, site.weights.front().name);
      }
    }
  }
  return leaders;
}

Json checkpoint_json(const Family& family, const ModelConfig& config) {
  const auto leaders = site_leaders(config);
  Json tensors = Json::array(), rules = Json::object();
  for (const TensorSpec& spec : tensor_list(config)) {
    if (spec.name.starts_with(kMtp)) continue;
    const auto leader = leaders.find(spec.name);
    Json entry = {{"name", spec.name},
                  {"shape", spec.shape},
                  {"linear", is_block_linear(spec.role)},
                  {"site", leader != leaders.end() ? leader->second : spec.name}};
    add_place(family, config, spec, entry, rules);
    tensors.push_back(std::move(entry));
  }
  return {{"family", family.name},
          {"model_type", family.model_type},
          {"architecture", family.architectures.front()},
          {"activation", family.activations.front()},
          {"rotary", family.rotary},
          {"windows", kWindowRules[static_cast<std::size_t>(family.windows)]},
          {"qkv_bias", family.qkv_bias},
          {"output_bias", family.output_bias},
          {"mlp_bias", family.mlp_bias},
          {"keys", keys_json(family)},
          {"tensors", std::move(tensors)},
          {"rules", std::move(rules)}};
}

const Family& family_of(const char* model_type, const ModelConfig& config) {
  const std::string_view wanted = model_type;
  for (const Family* family : families()) {
    if (wanted.empty() ? family->name == config.family : family->model_type == wanted) {
      return *family;
    }
  }
  fail("family ", printable(wanted.empty() ? config.family : wanted), " is not known");
}

Json description(const Model& model, const char* model_type, std::int64_t context) {
  const ModelConfig& config = model.config();
  require(context >= 0, Setting{"context"}, " ", context, ": expected 0 or more");
  Json layers = Json::array(), sampling = Json::object(), ropes = Json::array();
  const std::vector<RopeConfig> rules = config.ropes();
  for (const LayerConfig& layer : config.layers) {
    layers.push_back(layer_to_json(layer));
    const AttentionConfig* attention = layer.attention();
    if (attention == nullptr || !attention->rope) continue;
    const auto rule = std::ranges::find(rules, *attention->rope) - rules.begin();
    layers[layers.size() - 1]["mixer"]["rope"] = rule;
  }
  for (const RopeConfig& rule : rules) {
    const RopeFrequencies rope =
        rope_frequencies(config, rule, context > 0 ? context : config.context);
    ropes.push_back({{"inv_freq", rope.inv_freq}, {"attention_factor", rope.attention_factor}});
  }
  const Json said = generation_to_json(model.generation());
  for (const SamplingParameter& parameter : kSamplingParameters) {
    if (parameter.config_key.empty() || !said.contains(parameter.name)) continue;
    sampling[parameter.config_key] = said.at(parameter.name);
  }
  Json json = {{"learned_positions", config.learned_positions},
               {"layers", std::move(layers)},
               {"ropes", std::move(ropes)},
               {"sampling", std::move(sampling)},
               {"end_tokens", model.end_tokens()}};
  if (model_type != nullptr)
    json["checkpoint"] = checkpoint_json(family_of(model_type, config), config);
  return json;
}

}  // namespace
}  // namespace leq::capi

using namespace leq;
using namespace leq::capi;

extern "C" {

leq_status leq_tensor_floats(const leq_model* model, const char* name, float* numbers, size_t count,
                             leq_error* error) {
  return guarded(error, [&] {
    const WeightView& weight = tensor_of(model, name);
    require_use(numbers != nullptr, "numbers is NULL");
    require_count(count, weight.rows * weight.columns, "count");
    const std::span<float> out(numbers, count);
    const auto columns = static_cast<std::size_t>(weight.columns);
    for (std::int64_t row = 0; row < weight.rows; ++row) {
      unpack_row(weight, row, out.subspan(static_cast<std::size_t>(row) * columns, columns));
    }
  });
}

leq_status leq_tensor_codes(const leq_model* model, const char* name, void* codes, size_t count,
                            float* scales, uint8_t* zeros, size_t blocks, leq_error* error) {
  return guarded(error, [&] {
    const WeightView& weight = tensor_of(model, name);
    const QuantScheme& scheme = weight.scheme;
    require(scheme.is_integer() && !scheme.is_super(), name, ": type ", scheme_name(scheme),
            " has no plain codes");
    const bool has_zeros = scheme.kind == CodeKind::uint_;
    require_use(codes != nullptr && scales != nullptr, "codes or scales is NULL");
    require_use((zeros != nullptr) == has_zeros, "zeros: expected for uint types, and only there");
    const std::int64_t block = scheme.scaling == Scaling::group ? scheme.group : weight.columns;
    require_count(count, weight.rows * weight.columns, "count");
    require_count(blocks, weight.rows * ((weight.columns + block - 1) / block), "blocks");
    copy_codes(weight, static_cast<std::uint8_t*>(codes), scales, zeros);
  });
}

leq_status leq_table(const leq_model* model, const char* name, const void** bytes, size_t* size,
                     leq_error* error) {
  clear(bytes, size);
  return guarded(error, [&] {
    const LeqReader& file = model_of(model).file().file();
    require_use(name != nullptr && bytes != nullptr && size != nullptr,
                "name, bytes or size is NULL");
    const auto found = file.blob(name);
    require(found.has_value(), file.name(), ": no table ", printable(name));
    *bytes = found->data();
    *size = found->size();
  });
}

leq_status leq_describe(const leq_model* model, const char* model_type, int64_t context,
                        char** json, leq_error* error) {
  if (json != nullptr) *json = nullptr;
  return guarded(error, [&] {
    const OpenModel& opened = model_of(model);
    require_use(json != nullptr, "json is NULL");
    *json = new_text(description(opened.file(), model_type, context).dump());
  });
}

}  // extern "C"
