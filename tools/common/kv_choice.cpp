#include "tools/common/kv_choice.h"

#include "base/error.h"
#include "base/text.h"
#include "runtime/runtime.h"

namespace leq {
namespace {

std::optional<int> number_of(const Options& options, std::string_view name) {
  if (!options.given(name)) return std::nullopt;
  return static_cast<int>(options.integer(name));
}

std::vector<std::string> kv_words() {
  const std::string names = kv_type_names(" ");
  std::vector<std::string> words;
  for (const std::string_view word : split(names, " ")) words.emplace_back(word);
  return words;
}

}  // namespace

const std::vector<std::array<std::string, 2>>& kv_synonyms() {
  static const std::vector<std::array<std::string, 2>> kAll = {
      {"q8_0", "int8"}, {"q8", "int8"}, {"fp16", "f16"}, {"fp32", "f32"}};
  return kAll;
}

std::vector<Option> kv_options() {
  std::vector<Option> options = {
      {.name = "cache-type-k",
       .spellings = "-ctk",
       .kind = OptionKind::text,
       .value_name = "T",
       .help = "type of the keys in the KV cache: " + kv_type_names(" | ") +
               " (default f32 for models of type f32, else f16)",
       .suggestions = kv_words(),
       .synonyms = kv_synonyms()},
      {.name = "cache-type-v",
       .spellings = "-ctv",
       .kind = OptionKind::text,
       .value_name = "T",
       .help = "type of the values in the KV cache, likewise",
       .suggestions = kv_words(),
       .synonyms = kv_synonyms()},
  };
  for (Option& option : kv_detail_options()) options.push_back(std::move(option));
  return options;
}

std::vector<Option> kv_detail_options() {
  return {
      {.name = "kv-sink",
       .kind = OptionKind::integer,
       .value_name = "N",
       .help = "simq types: the first N positions stay in f16 (default 4)",
       .minimum = 0,
       .maximum = kPageTokens},
      {.name = "kv-residual",
       .kind = OptionKind::integer,
       .value_name = "N",
       .help = "simq types: the newest N positions are read in f16 (default 32; simq2 128)",
       .minimum = 0,
       .maximum = 1 << 20},
      {.name = "ctx-checkpoints",
       .kind = OptionKind::integer,
       .value_name = "N",
       .help =
           "models with recurrent layers (Qwen3.5): number of saved states of earlier prompts "
           "and replies; a prompt with the same prefix continues from such a state (default: as "
           "many as fit in " +
           human_bytes(kKeptStateBytes) + ", " + std::to_string(kMinDefaultStates) + " to " +
           std::to_string(kMaxDefaultStates) + ")",
       .minimum = 0,
       .maximum = kMaxKeptStates},
      {.name = "kv-layers",
       .kind = OptionKind::list,
       .value_name = "LAYERS=T",
       .help = "layers, counted from 0, with types of their own: 0-1,27=f16, or 3=int8/simq4 "
               "for keys / values; may be given several times"},
  };
}

void choose_kv(const Options& options, const Model& model, RunLimits& limits) {
  const auto type = [&](std::string_view name, Setting setting) -> std::optional<KvType> {
    if (!options.given(name)) return std::nullopt;
    return parse_kv_type(options.text(name), setting);
  };
  choose_kv_types(type("cache-type-k", Setting{"key_type"}),
                  type("cache-type-v", Setting{"value_type"}), model, limits);
  choose_kv_details(options, limits);
}

void choose_kv_details(const Options& options, RunLimits& limits) {
  for (const std::string& text : options.list("kv-layers")) {
    for (const KvLayerTypes& own : parse_kv_layers(text, Setting{"kv_layers"})) {
      limits.kv_layers.push_back(own);
    }
  }
  for (const char* name : {"kv-sink", "kv-residual"}) {
    require(kv_residual(limits).copies() || !options.given(name), ErrorKind::bad_setting, "--",
            name, ": types ", kv_type_name(limits.key_type), " and ",
            kv_type_name(limits.value_type), " have no use for it; give ", Setting{"key_type"},
            " simq8, simq4 or simq2");
  }
  if (const auto kept = number_of(options, "ctx-checkpoints")) limits.kept_states = *kept;
  limits.kv_sinks = number_of(options, "kv-sink");
  limits.kv_recent = number_of(options, "kv-residual");
}

std::string wide_keys_text(const KvShape& shape, const RunLimits& limits) {
  std::vector<std::string> layers;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    if (shape.type(layer, KvPart::keys) != layer_type(limits, layer, KvPart::keys)) {
      layers.push_back(std::to_string(layer));
    }
  }
  if (layers.empty()) return "";
  std::string text = layers.size() == 1 ? "layer " : "layers ";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    text += i == 0 ? "" : i + 1 == layers.size() ? " and " : ", ";
    text += layers[i];
  }
  return text + ": keys " + std::string(kv_type_name(kUsualKv)) + ", their biases are large";
}

std::string kv_label(KvType type, const RunLimits& limits) {
  std::string label(kv_type_name(type));
  if (!limits.kv_layers.empty()) label += " (" + kv_layers_text(limits.kv_layers) + ")";
  if (!kv_scheme(type).blocked()) return label;
  const KvResidual residual = kv_residual(limits);
  return label + " s" + std::to_string(residual.sinks) + " r" + std::to_string(residual.recent) +
         " b" + std::to_string(residual.block);
}

}  // namespace leq
