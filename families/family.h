// A model family as data: which config.json it has, how its keys map to ModelConfig, and its
// tensors' names and layouts. Each family has one file in this folder, with a function for what
// only its own keys say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"

namespace leq {

// Keys of config.json. nullptr: the family has no such key.
struct ConfigKeys {
  const char* width;
  const char* layers;
  const char* heads;
  const char* kv_heads;  // absent or null in the file: as many as heads
  const char* head_dim;  // absent or null in the file: width / heads
  const char* hidden;    // absent or null in the file: 4 x width where hidden_is_optional
  const char* vocab;
  const char* context;
  const char* norm_eps;
  const char* activation;
};

// The layers with a sliding attention window, where config.json has no layer_types.
enum class WindowRule : std::uint8_t {
  none,
  named,         // sliding_window, none where the key is absent (Ministral 3, Mixtral)
  all_layers,    // sliding_window, 4096 where the key is absent (Mistral)
  upper_layers,  // sliding_window from layer max_window_layers on, if use_sliding_window (Qwen)
  switched,      // sliding_window on all layers, if use_sliding_window (Qwen's experts)
};

// Maps row `row` of leq's tensor to its row in the stored tensor, where heads of several linears
// are interleaved in one. Sizes are those of the configuration.
struct RowOrder {
  std::int64_t (*stored_rows)(const ModelConfig& config);
  std::int64_t (*row)(const ModelConfig& config, std::int64_t row);
};

// Keys of a family with Gated DeltaNet layers. Layer i has attention where (i + 1) % interval == 0,
// or where layer_types says full_attention.
struct DeltaKeys {
  const char* key_heads;
  const char* value_heads;
  const char* key_dim;
  const char* value_dim;
  const char* taps;
  const char* interval;
};

// Keys of a family with experts. nullptr: there is no such key.
struct ExpertKeys {
  const char* experts;
  const char* active;
  const char* hidden;      // of one expert
  const char* normalized;  // nullptr: weights are always normalized
  bool normalized_if_absent = false;
  const char* sparse_step;   // layer i has experts where (i + 1) % step == 0
  const char* dense_layers;  // a list of layers without experts
  const char* shared_hidden;
};

// Where the numbers of a tensor of leq are in the stored one.
struct TensorLayout {
  bool transposed = false;  // stored [K][N]
  int part = 0;             // of `parts` equal groups of output channels joined in one tensor
  int parts = 1;
  bool interleaved = false;  // rows of the parts alternate
  int column_part = 0;       // of `column_parts` equal groups of inputs joined in one tensor
  int column_parts = 1;
  bool stacked = false;               // [E][parts N][K], all experts in one tensor
  bool taps_first = false;            // stored [channels][1][taps]; leq: [taps][channels]
  const RowOrder* order = nullptr;    // null: in stored order
  const RowOrder* columns = nullptr;  // order of columns; null: in stored order
};

// What is computed from the stored numbers.
struct TensorTransform {
  float added = 0;                     // 1 for gains that are stored around zero
  bool log_of_negative = false;        // log(-stored): GGUF stores A instead of A_log
  bool normed_rows = false;            // each row is divided by its RMS (RMS norm without gain)
  float constant = 0;                  // all numbers of a tensor without a source; 0 = it has one
  const char* constant_key = nullptr;  // key of config.json with another constant, if given
  float divisor = 1;                   // of all numbers
  const char* divisor_key = nullptr;   // key of config.json with another divisor, if given
  bool by_root_width = false;          // divided by sqrt(width)

  bool computes() const {
    return added != 0 || log_of_negative || normed_rows || divisor != 1 || by_root_width;
  }
};
inline constexpr TensorTransform kAroundZero = {.added = 1};

// The source of a tensor of leq in the checkpoint. Tensors of a multi-token prediction head have
// the model's own names, after a prefix. "{}" stands for the layer, a second one for the expert. If
// a tensor has several rules, the first whose source exists applies.
struct TensorRule {
  std::string_view leq;
  std::string_view source;
  TensorLayout layout = {};
  TensorTransform transform = {};
};

struct Family {
  std::string_view name;        // display name
  std::string_view model_type;  // config.json
  std::vector<std::string_view> architectures;
  ConfigKeys keys;
  std::vector<std::string_view> activations;  // accepted spellings
  NormKind norm = NormKind::rms;
  bool rotary = true;
  bool gated = true;
  bool hidden_is_optional = false;
  bool tied_by_default = false;
  bool qk_norm = false;
  std::string_view defaults = {};  // values of keys that config.json does not have, as JSON
  WindowRule windows = WindowRule::none;
  bool output_gate = false;  // attention has an output gate
  // Rotary share of a head if partial_rotary_factor is absent; nullopt: the key must be 1 or
  // absent.
  std::optional<double> partial_rotary = {};
  const DeltaKeys* delta = nullptr;
  // What layer_types calls the layers whose mixer `finish` sets.
  std::string_view own_mixers = {};
  std::optional<ExpertKeys> experts = {};
  // Adds, to a config.json with defaults, the keys that transformers computes from others when it
  // reads the file, such as layer_types. Throws Error naming `source` and the key.
  void (*complete)(Json& json, std::string_view source) = nullptr;
  // Reads what only this family's keys say into a configuration that is otherwise complete. Throws
  // Error naming `source` and the key. `json`: config.json with defaults; null: there is nothing.
  void (*finish)(const Json& json, std::string_view source, ModelConfig& config) = nullptr;
  // Keys that `finish` reads and that are refused in other families because they change the
  // function (convert/hf_config.cpp); "rope_parameters.KEY" in the table of that name.
  std::vector<std::string_view> computes = {};
  // Biases: fixed by the family, or switched by keys of config.json.
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  const char* attention_bias_key = nullptr;  // q, k, v and o
  const char* mlp_bias_key = nullptr;
  // Keys that must have this value; leq does not compute the function that other values select.
  struct Fixed {
    const char* key;
    bool value;  // also the default if the key is absent
  };
  std::vector<Fixed> fixed;
  std::vector<TensorRule> tensors;
  std::vector<std::string_view> prefixes;  // tried in order in front of every name but the head's
  std::string_view head;                   // "lm_head.weight"
  std::vector<std::string_view> ignored;   // endings of tensors that hold no weights
};

std::span<const Family* const> families();
// nullptr where no family has that model_type.
const Family* find_family(std::string_view model_type);

}  // namespace leq
