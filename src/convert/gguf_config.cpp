#include "convert/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/hf_import.h"
#include "families/family.h"
#include "format/gguf.h"
#include "format/gguf_source.h"

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

constexpr const char *kLongFactors = "rope_factors_long.weight",
                     *kShortFactors = "rope_factors_short.weight";

std::vector<float> factors_of(const GgufSource& source, const SourceTensor& tensor) {
  require(tensor.shape.size() == 1 && tensor.shape[0] <= 4096, tensor.place, ": tensor ",
          tensor.name, " has shape ", shape_text(tensor.shape),
          ", expected one number for each pair of columns");
  std::vector<float> factors(static_cast<std::size_t>(tensor.shape[0]));
  source.read(tensor, 0, factors);
  return factors;
}

// The tensor contains only the divisors; factor and original context are reconstructed from them.
Json scaling_of_divisors(const SourceTensor& tensor, const GgufSource& source, double theta) {
  const std::vector<float> divisors = factors_of(source, tensor);
  const double factor = static_cast<double>(*std::ranges::max_element(divisors));
  const auto rotated = std::ranges::find_if(divisors, [](float x) { return x != 1; });
  if (rotated == divisors.end()) return {};
  constexpr float kNever = 1e29f;  // a divisor above stops the rotation
  if (std::all_of(rotated, divisors.end(), [](float x) { return x > kNever; })) {
    const auto pairs = static_cast<double>(rotated - divisors.begin());
    return {{"rope_type", "proportional"},
            {"partial_rotary_factor", pairs / static_cast<double>(divisors.size())}};
  }
  for (std::int64_t context = 64; context <= 1 << 20; context *= 2) {
    if (!follows_llama3(divisors, theta, factor, static_cast<double>(context))) continue;
    return {{"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", kLowFrequencyFactor},
            {"high_freq_factor", kHighFrequencyFactor},
            {"original_max_position_embeddings", context}};
  }
  fail(tensor.place,
       ": tensor rope_freqs.weight does not follow the rule of Llama 3, nor that of pairs without "
       "rotation, which are those that are supported as a tensor");
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

// LongRoPE: divisors of frequencies as tensors; attn_factor is the factor on cosines and sines.
// The original context is at the top level, where it replaces the family's default.
void add_longrope(const GgufSource& source, const std::string& prefix, Json& config) {
  const GgufMetadata& metadata = source.metadata();
  const auto original = metadata.integer(prefix + "original_context_length");
  require(original.has_value(), metadata.source(), ": key ", prefix,
          "original_context_length is missing, which longrope needs");
  const auto factors = [&](const char* name) {
    const SourceTensor* tensor = source.find(name);
    require(tensor != nullptr, metadata.source(), ": tensor ", name, " is missing");
    return factors_of(source, *tensor);
  };
  config["original_max_position_embeddings"] = *original;
  config["rope_scaling"] = {
      {"rope_type", "longrope"},
      {"long_factor", factors(kLongFactors)},
      {"short_factor", factors(kShortFactors)},
      {"factor", 1.0},
      {"attention_factor", metadata.number(prefix + "attn_factor").value_or(1)}};
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

// Sets rope_theta and rope_scaling from the keys that begin with `architecture` ("llama.") and from
// the tensor rope_freqs.weight, which encodes Llama 3's scaling.
void read_gguf_rope(const GgufSource& source, const std::string& architecture, Json& config) {
  const GgufMetadata& metadata = source.metadata();
  const double theta = metadata.number(architecture + "rope.freq_base").value_or(kDefaultTheta);
  config["rope_theta"] = theta;
  const std::string prefix = architecture + "rope.scaling.";
  if (source.find(kLongFactors) != nullptr) {
    add_longrope(source, prefix, config);
    return;
  }
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

class Keys;
void read_granite(const Keys& keys, Json& config);
void read_gemma3(const Keys& keys, Json& config);
void read_gemma4(const Keys& keys, Json& config);
void read_gpt_oss(const Keys& keys, Json& config);
void read_muse(const Keys& keys, Json& config);
void read_lfm2(const Keys& keys, Json& config);

// A value of general.architecture and the corresponding model_type of config.json.
struct Architecture {
  std::string_view name;
  std::string_view model_type;
  std::string_view windowed = {};  // model_type if attention.sliding_window is present
  std::string_view experts = {};   // model_type if expert_count is above 0
  bool paired_rows = false;        // q and k rows are in llama.cpp's RoPE order
  std::string_view plain = {};     // model_type if RoPE is unscaled
  void (*read_own)(const Keys& keys, Json& config) = nullptr;  // keys that only it has
  std::array<std::string_view, 4> own_keys = {};               // of these, those that others refuse
};
constexpr std::array<Architecture, 19> kArchitectures = {{
    {"llama", "llama", "mistral", "mixtral", true},
    {"mistral3", "ministral3", {}, {}, true, "mistral"},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen3moe", "qwen3_moe", {}, "qwen3_moe"},
    {"qwen3next", "qwen3_next", {}, "qwen3_next"},
    {"qwen35", "qwen3_5_text"},
    {"qwen35moe", "qwen3_5_moe_text", {}, "qwen3_5_moe_text"},
    {"muse-glimmer",
     "muse_glimmer_text",
     "muse_glimmer_text",
     {},
     true,
     {},
     read_muse,
     {"final_logit_softcapping", "logit_scale"}},
    {"gemma3",
     "gemma3_text",
     "gemma3_text",
     {},
     false,
     {},
     read_gemma3,
     {"final_logit_softcapping"}},
    {"gemma4",
     "gemma4_text",
     "gemma4_text",
     "gemma4_text",
     false,
     {},
     read_gemma4,
     {"final_logit_softcapping"}},
    {"gemma-embedding", "gemma3_text", "gemma3_text", {}, false, {}, read_gemma3},
    {"gpt-oss", "gpt_oss", "gpt_oss", "gpt_oss", false, {}, read_gpt_oss},
    {"phi3", "phi3", "phi3"},
    {"granite",
     "granite",
     {},
     {},
     true,
     {},
     read_granite,
     {"logit_scale", "residual_scale", "embedding_scale", "attention.scale"}},
    {"smollm3", "smollm3", {}, {}, true},
    {"lfm2", "lfm2", {}, {}, false, {}, read_lfm2},
    {"lfm2moe", "lfm2_moe", {}, "lfm2_moe", false, {}, read_lfm2},
    {"gpt2", "gpt2"},
}};

const Architecture& architecture_of(const GgufMetadata& metadata) {
  const std::string& source = metadata.source();
  const std::string_view type = metadata.text("general.type").value_or("model");
  const auto name = metadata.text("general.architecture");
  require(type != "adapter", source, ": is a LoRA adapter, which is not read; merge it into its ",
          "model first");
  require(
      type != "mmproj" && name != "clip", source,
      ": is a vision or audio tower (mmproj), which is not read; give the language model's file");
  require(type != "imatrix", source, ": is an importance matrix, which holds no model");
  require(type == "model", source, ": general.type is ", printable(type), ", expected model");
  require(name.has_value(), source, ": key general.architecture is missing; is this a model?");
  const auto found = std::ranges::find(kArchitectures, *name, &Architecture::name);
  std::vector<std::string> names;
  for (const Architecture& known : kArchitectures) names.emplace_back(known.name);
  require(found != kArchitectures.end(), source, ": architecture ", printable(*name),
          " is not supported; supported are ", join(names));
  return *found;
}

// Reads the metadata keys of one architecture, such as "llama.block_count".
class Keys {
 public:
  Keys(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  std::int64_t count(std::string_view key) const {
    const auto value = count_if_there(key);
    require(value.has_value(), metadata_.source(), ": key ", prefix_, key, " is missing");
    return *value;
  }
  std::optional<std::int64_t> count_if_there(std::string_view key) const {
    const auto value = metadata_.equal_integer(prefix_ + std::string(key));
    if (value) check_size(key, *value);
    return value;
  }
  double number(std::string_view key) const {
    const auto value = metadata_.number(prefix_ + std::string(key));
    require(value.has_value(), metadata_.source(), ": key ", prefix_, key, " is missing");
    return *value;
  }
  // The heads of keys and values. In hybrids, an array may have 0 for the layers without attention.
  std::int64_t kv_heads() const {
    if (has_two_heads()) return kv_heads_of(false).value_or(count("attention.head_count"));
    const std::string key = prefix_ + "attention.head_count_kv";
    const auto found = metadata_.values().find(key);
    const bool listed = found != metadata_.values().end() && found->second.kind == GgufKind::array;
    const auto interval = metadata_.equal_integer(prefix_ + "full_attention_interval");
    const bool conv = metadata_.has(prefix_ + "shortconv.l_cache");
    if (!listed || (!conv && !metadata_.has(prefix_ + "ssm.state_size"))) {
      return count_if_there("attention.head_count_kv").value_or(count("attention.head_count"));
    }
    require(interval.value_or(1) > 0, metadata_.source(), ": key ", prefix_,
            "full_attention_interval is ", interval.value_or(0), ", expected above 0");
    const std::vector<std::int64_t> all = metadata_.integers(key);
    const std::int64_t most = all.empty() ? 0 : std::ranges::max(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool attends = !conv && (static_cast<std::int64_t>(i) + 1) % interval.value_or(4) == 0;
      require(all[i] == most || (all[i] == 0 && !attends), metadata_.source(), ": key ", key,
              " has ", all[i], " for layer ", i, ", expected ", most, attends ? "" : " or 0");
    }
    return most;
  }
  // feed_forward_length: a number, or one for each layer of Gemma 4; empty: none.
  std::vector<std::int64_t> hidden() const {
    constexpr const char* kKey = "feed_forward_length";
    const auto found = metadata_.values().find(prefix_ + kKey);
    const bool listed = found != metadata_.values().end() && found->second.kind == GgufKind::array;
    if (listed && has_two_heads()) {
      const std::vector<std::int64_t> all = metadata_.integers(prefix_ + kKey);
      for (const std::int64_t hidden : all) check_size(kKey, hidden);
      return all;
    }
    const auto one = count_if_there(kKey);
    return one ? std::vector<std::int64_t>{*one} : std::vector<std::int64_t>();
  }
  // Whether layers with a window have heads of their own, whose keys end with _swa.
  bool has_two_heads() const { return metadata_.has(prefix_ + "attention.key_length_swa"); }
  // The heads of keys and values of layers without a window, or with one; nullopt: not given.
  std::optional<std::int64_t> kv_heads_of(bool full) const;
  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& prefix() const { return prefix_; }

 private:
  // Products of two counts do not overflow.
  void check_size(std::string_view key, std::int64_t value) const {
    constexpr std::int64_t kLargest = std::int64_t{1} << 31;
    require(value >= -kLargest && value <= kLargest, metadata_.source(), ": key ", prefix_, key,
            " is ", value, ", at most ", kLargest, " is accepted");
  }

  const GgufMetadata& metadata_;
  std::string prefix_;
};

// Refuses keys that change the model's function in a way that leq does not support.
void refuse_features(const Keys& keys, const Architecture& architecture) {
  const std::string& source = keys.metadata().source();
  const auto refuse = [&](std::string_view key, std::int64_t none, std::string_view what) {
    const auto value = keys.count_if_there(key);
    require(!value || *value == none, source, ": ", keys.prefix(), key, " = ", value.value_or(0),
            ": ", what, " not supported");
  };
  if (architecture.experts.empty()) refuse("expert_count", 0, "mixtures of experts are");
  refuse("expert_shared_count", 0, "its shared experts are");
  if (architecture.windowed.empty()) refuse("attention.sliding_window", 0, "its windows are");
  for (const char* key : {"attention.clamp_kqv", "attention.max_alibi_bias",
                          "attn_logit_softcapping", "final_logit_softcapping", "logit_scale",
                          "residual_scale", "embedding_scale", "attention.scale"}) {
    const std::string_view name = key;
    if (std::ranges::find(architecture.own_keys, name) != architecture.own_keys.end()) continue;
    const auto value = keys.metadata().number(keys.prefix() + key);
    require(!value || *value == 0 || (*value == 1 && name.ends_with("scale")), source, ": ",
            keys.prefix(), key, " = ", value.value_or(0), " is not supported");
  }
}

void set(Json& config, const char* key, const Json& value) {
  if (key != nullptr) config[key] = value;
}

void read_heads(const Keys& keys, const Family& family, Json& config) {
  const std::string& source = keys.metadata().source();
  const std::int64_t heads = keys.count("attention.head_count");
  const std::int64_t width = keys.count("embedding_length");
  require(heads > 0 && width > 0, source, ": ", heads, " heads, width ", width);
  const std::string of = keys.has_two_heads() ? "_swa" : "";
  const auto length = [&](const char* key) {
    return keys.count_if_there(key + of).value_or(width / heads);
  };
  const std::int64_t head_dim = length("attention.key_length");
  const std::int64_t value_dim = length("attention.value_length");
  require(head_dim == value_dim, source, ": keys of ", head_dim, " columns and values of ",
          value_dim, " are not supported");
  set(config, family.keys.heads, heads);
  set(config, family.keys.kv_heads, keys.kv_heads());
  set(config, family.keys.head_dim, head_dim);
  require(family.keys.head_dim != nullptr || head_dim * heads == width, source, ": heads of ",
          head_dim, " columns in a ", family.name, " model of width ", width);
  if (!family.rotary) return;
  const std::int64_t rotary = keys.count_if_there("rope.dimension_count" + of).value_or(head_dim);
  if (family.partial_rotary) {
    config["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(head_dim);
    return;
  }
  require(rotary == head_dim, source, ": ", keys.prefix(), "rope.dimension_count is ", rotary,
          " of ", head_dim, ": rotary positions in a part of a head are not supported");
}

// Detects biases that only some files of a family have, by their tensors.
void read_biases(const GgufSource& source, const Family& family, Json& config) {
  const auto there = [&](const char* name) { return source.find(name) != nullptr; };
  set(config, family.attention_bias_key,
      there("blk.0.attn_q.bias") || there("blk.0.attn_output.bias"));
  set(config, family.mlp_bias_key, there("blk.0.ffn_up.bias") || there("blk.0.ffn_down.bias"));
}

// The number of multi-token prediction layers at the end, which are included in block_count.
std::int64_t draft_layers(const Keys& keys) {
  const std::string& source = keys.metadata().source();
  const std::int64_t all = keys.count("block_count");
  check_layer_count(all, source, [&](std::string_view) { return keys.prefix() + "block_count"; });
  const std::int64_t drafts = keys.count_if_there("nextn_predict_layers").value_or(0);
  require(drafts >= 0 && drafts < all, source, ": key ", keys.prefix(), "nextn_predict_layers is ",
          drafts, " of ", all, " layers");
  return drafts;
}
std::int64_t layer_count(const Keys& keys) {
  return keys.count("block_count") - draft_layers(keys);
}

// Layers that have no router tensor are dense.
void read_experts(const GgufSource& source, const Keys& keys, const Family& family, Json& config) {
  if (!family.experts || (family.name == "Gemma 4" && !keys.count_if_there("expert_count"))) return;
  const ExpertKeys& names = *family.experts;
  set(config, names.experts, keys.count("expert_count"));
  set(config, names.active, keys.count("expert_used_count"));
  const auto hidden = keys.count_if_there("expert_feed_forward_length");
  if (hidden || std::string_view(names.hidden) != family.keys.hidden) {
    set(config, names.hidden, keys.count("expert_feed_forward_length"));
  }
  set(config, names.shared_hidden,
      keys.count_if_there("expert_shared_feed_forward_length").value_or(0));
  // llama.cpp always normalizes; the key is Ollama's.
  set(config, names.normalized,
      keys.metadata().flag(keys.prefix() + "norm_top_k_prob").value_or(true));
  if (names.dense_layers == nullptr) return;
  Json dense = Json::array();
  for (std::int64_t layer = 0, layers = layer_count(keys); layer < layers; ++layer) {
    const std::string router = "blk." + std::to_string(layer) + ".ffn_gate_inp.weight";
    if (source.find(router) == nullptr) dense.push_back(layer);
  }
  config[names.dense_layers] = std::move(dense);
}

// Whether each layer has a window, by attention.sliding_window_pattern: a flag for each layer, or a
// number n, which means n - 1 layers with a window, then one without.
std::vector<bool> windowed_layers(const Keys& keys, std::int64_t default_period) {
  const GgufMetadata& metadata = keys.metadata();
  const std::string pattern = keys.prefix() + "attention.sliding_window_pattern";
  const auto found = metadata.values().find(pattern);
  const bool listed = found != metadata.values().end() && found->second.kind == GgufKind::array;
  const std::vector<std::int64_t> flags =
      listed ? metadata.integers(pattern) : std::vector<std::int64_t>();
  const std::int64_t period = listed ? 0 : metadata.integer(pattern).value_or(default_period);
  const std::int64_t layers = layer_count(keys);
  require(listed ? std::ssize(flags) == layers : period > 0, metadata.source(), ": key ", pattern,
          ": expected a number above 0 or a flag for each of ", layers, " layers");
  std::vector<bool> windowed;
  for (std::int64_t i = 0; i < layers; ++i) {
    windowed.push_back(listed ? flags[static_cast<std::size_t>(i)] != 0 : (i + 1) % period != 0);
  }
  return windowed;
}

// Sets the keys of windows; returns whether each layer has one.
std::vector<bool> read_windows(const Keys& keys, std::int64_t default_period, Json& config) {
  config["sliding_window"] = keys.count("attention.sliding_window");
  const std::vector<bool> windowed = windowed_layers(keys, default_period);
  for (const bool one : windowed) {
    config["layer_types"].push_back(one ? "sliding_attention" : "full_attention");
  }
  return windowed;
}

std::optional<std::int64_t> Keys::kv_heads_of(bool full) const {
  const std::string key = prefix_ + "attention.head_count_kv";
  const auto found = metadata_.values().find(key);
  if (found == metadata_.values().end()) return std::nullopt;
  if (found->second.kind != GgufKind::array) return metadata_.integer(key);
  const std::vector<std::int64_t> all = metadata_.integers(key);
  const std::vector<bool> windowed = windowed_layers(*this, 6);
  require(all.size() == windowed.size(), metadata_.source(), ": key ", key, " has ", all.size(),
          " numbers, expected ", windowed.size());
  std::optional<std::int64_t> heads;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (windowed[i] == full) continue;
    require(heads.value_or(all[i]) == all[i], metadata_.source(), ": key ", key, " has ", all[i],
            " for layer ", i, ", and ", heads.value_or(0), " for another one of its kind");
    heads = all[i];
  }
  return heads;
}

// Gemma 4: two kinds of layers, each with heads and RoPE of its own.
void read_gemma4(const Keys& keys, Json& config) {
  const GgufMetadata& metadata = keys.metadata();
  require(keys.has_two_heads(), metadata.source(), ": key ", keys.prefix(),
          "attention.key_length_swa is missing");
  read_windows(keys, 6, config);
  config["attention_k_eq_v"] = true;
  config["global_head_dim"] = keys.count("attention.key_length");
  const std::int64_t heads = keys.count("attention.head_count");
  config["num_global_key_value_heads"] = keys.kv_heads_of(true).value_or(heads);
  Json far = config["rope_scaling"].is_null() ? Json::object() : config["rope_scaling"];
  far["rope_theta"] = config["rope_theta"];
  const double near = metadata.number(keys.prefix() + "rope.freq_base_swa").value_or(kDefaultTheta);
  config["rope_parameters"] = {{"full_attention", std::move(far)},
                               {"sliding_attention", {{"rope_theta", near}}}};
  config["rope_scaling"] = nullptr;
  config["enable_moe_block"] = config.find_given("num_experts") != nullptr;
  config["hidden_size_per_layer_input"] =
      keys.count_if_there("embedding_length_per_layer_input").value_or(0);
  const std::int64_t shared = keys.count_if_there("attention.shared_kv_layers").value_or(0);
  config["num_kv_shared_layers"] = shared;
  config["vocab_size_per_layer_input"] = config["vocab_size"];
  const std::vector<std::int64_t> hidden = keys.hidden();
  const std::int64_t own = layer_count(keys) - shared;
  require(hidden.empty() || hidden[0] > 0, metadata.source(), ": key ", keys.prefix(),
          "feed_forward_length is not above 0");
  for (std::int64_t i = 0; i < std::ssize(hidden); ++i) {
    const std::int64_t want = hidden[0] * (i < own ? 1 : hidden.back() / hidden[0]);
    require(hidden[static_cast<std::size_t>(i)] == want && hidden.back() <= 2 * hidden[0],
            metadata.source(), ": key ", keys.prefix(), "feed_forward_length has ",
            hidden[static_cast<std::size_t>(i)], " for layer ", i, ", expected ", want);
  }
  config["use_double_wide_mlp"] = !hidden.empty() && hidden.back() == 2 * hidden[0];
  const double cap = metadata.number(keys.prefix() + "final_logit_softcapping").value_or(0);
  if (cap != 0) config["final_logit_softcapping"] = cap;
}

// Files do not have the scale of queries: as in llama.cpp, it follows from the model's size.
void read_gemma3(const Keys& keys, Json& config) {
  constexpr std::int64_t kLayersOf27B = 62;
  const GgufMetadata& metadata = keys.metadata();
  read_windows(keys, 6, config);
  config["use_bidirectional_attention"] = keys.prefix() == "gemma-embedding.";
  config["rope_local_base_freq"] =
      metadata.number(keys.prefix() + "rope.freq_base_swa").value_or(kDefaultTheta);
  const std::int64_t of_width = keys.count("embedding_length") / keys.count("attention.head_count");
  config["query_pre_attn_scalar"] =
      layer_count(keys) == kLayersOf27B ? Json(of_width) : config["head_dim"];
  const double cap = metadata.number(keys.prefix() + "final_logit_softcapping").value_or(0);
  if (cap != 0) config["final_logit_softcapping"] = cap;
}

// Files do not say that the correction range of YaRN is not rounded.
void read_gpt_oss(const Keys& keys, Json& config) {
  read_windows(keys, 2, config);
  if (config.find_given("rope_scaling") != nullptr) config["rope_scaling"]["truncate"] = false;
}

// Granite's factors; those that are absent have no effect, except for queries: 1 / sqrt(head_dim).
void read_granite(const Keys& keys, Json& config) {
  const GgufMetadata& metadata = keys.metadata();
  const auto read = [&](const char* gguf, const char* key, double otherwise) {
    config[key] = metadata.number(keys.prefix() + gguf).value_or(otherwise);
  };
  const auto width = static_cast<double>(config["head_dim"].get<std::int64_t>());
  read("attention.scale", "attention_multiplier", 1 / std::sqrt(width));
  read("embedding_scale", "embedding_multiplier", 1);
  read("residual_scale", "residual_multiplier", 1);
  read("logit_scale", "logits_scaling", 1);
}

// LFM2: layers without heads of keys and values are short convolutions. The width of the MLP is the
// one that the model has.
void read_lfm2(const Keys& keys, Json& config) {
  const GgufMetadata& metadata = keys.metadata();
  config["conv_L_cache"] = keys.count("shortconv.l_cache");
  config["block_auto_adjust_ff_dim"] = false;
  constexpr std::int64_t kSigmoid = 2;
  const std::int64_t gating = keys.count_if_there("expert_gating_func").value_or(kSigmoid);
  require(gating == kSigmoid, metadata.source(), ": key ", keys.prefix(), "expert_gating_func is ",
          gating, ", expected ", kSigmoid, " (sigmoid)");
  const double scale = metadata.number(keys.prefix() + "expert_weights_scale").value_or(1);
  if (scale != 0) config["routed_scaling_factor"] = scale;
  for (const std::int64_t count : metadata.integers(keys.prefix() + "attention.head_count_kv")) {
    config["layer_types"].push_back(count == 0 ? "conv" : "full_attention");
  }
}

// Muse Glimmer: the layers with a window are those with RoPE.
void read_muse(const Keys& keys, Json& config) {
  config["output_multiplier"] = keys.number("logit_scale");
  config["final_logit_softcapping"] = keys.number("final_logit_softcapping");
  const double theta = config["rope_theta"].get<double>();
  const double windowed =
      keys.metadata().number(keys.prefix() + "rope.freq_base_swa").value_or(theta);
  for (const bool near : read_windows(keys, 4, config)) {
    config["layer_rope_theta"].push_back(near ? windowed : 0);
  }
}

Json config_of(const GgufSource& source, const Keys& keys, const Family& family) {
  const ConfigKeys& names = family.keys;
  const SourceTensor* table = source.find("token_embd.weight");
  require(table != nullptr && table->shape.size() == 2, keys.metadata().source(),
          ": tensor token_embd.weight is missing");
  Json config = {{"model_type", family.model_type}};
  set(config, names.width, keys.count("embedding_length"));
  set(config, names.layers, layer_count(keys));
  const std::vector<std::int64_t> hidden = keys.hidden();
  if (!hidden.empty() || !family.experts) {
    set(config, names.hidden,
        hidden.empty() ? keys.count("feed_forward_length") : std::ranges::min(hidden));
  }
  set(config, names.context, keys.count("context_length"));
  set(config, names.vocab, table->shape[0]);
  set(config, names.norm_eps,
      keys.number(family.norm == NormKind::rms ? "attention.layer_norm_rms_epsilon"
                                               : "attention.layer_norm_epsilon"));
  config["tie_word_embeddings"] = source.find("output.weight") == nullptr;
  read_heads(keys, family, config);
  read_biases(source, family, config);
  read_experts(source, keys, family, config);
  read_gguf_delta(keys.metadata(), keys.prefix(), family, config);
  const std::int64_t window = keys.count_if_there("attention.sliding_window").value_or(0);
  if (family.windows == WindowRule::all_layers || family.windows == WindowRule::named) {
    config["sliding_window"] = window;
  }
  return config;
}

}  // namespace

GgufModel read_gguf_model(const GgufSource& source) {
  const GgufMetadata& metadata = source.metadata();
  const Architecture& architecture = architecture_of(metadata);
  const Keys keys(metadata, architecture.name);
  const bool windowed = !architecture.windowed.empty() &&
                        keys.count_if_there("attention.sliding_window").value_or(0) > 0;
  const bool experts =
      !architecture.experts.empty() && keys.count_if_there("expert_count").value_or(0) > 0;
  const bool plain = !architecture.plain.empty() &&
                     metadata.text(keys.prefix() + "rope.scaling.type").value_or("none") == "none";
  const Family* family = find_family(experts    ? architecture.experts
                                     : windowed ? architecture.windowed
                                     : plain    ? architecture.plain
                                                : architecture.model_type);
  ensure(family != nullptr, "no family for architecture ", architecture.name);
  refuse_features(keys, architecture);
  GgufModel model;
  name_tensors(*family, model);
  const std::int64_t layers = layer_count(keys), all = layers + draft_layers(keys);
  for (std::int64_t i = layers; i < all; ++i) {
    model.left_out.push_back("blk." + std::to_string(i) + ".");
  }
  Json config = config_of(source, keys, *family);
  if (family->rotary) read_gguf_rope(source, keys.prefix(), config);
  if (architecture.read_own != nullptr) architecture.read_own(keys, config);
  read_constants(config, metadata.source(), model.family);
  model.config_json = config.dump();
  if (architecture.paired_rows) {
    model.paired_heads = keys.count("attention.head_count");
    model.paired_kv_heads = keys.kv_heads();
  }
  return model;
}

}  // namespace leq
