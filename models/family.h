// A model family as data: which config.json it has, how its keys map to ModelConfig, and where its
// tensors lie. One file of this folder for each family.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
  const char* head_dim;  // absent or null in the file: default_head_dim, or width / heads
  const char* hidden;    // absent or null in the file: 4 x width where hidden_is_optional
  const char* vocab;
  const char* context;
  const char* norm_eps;
  const char* activation;
};

// Which layers see only a window of positions, where config.json has no layer_types.
enum class WindowRule : std::uint8_t {
  none,
  named,         // sliding_window, none where the key is absent (Ministral 3, Mixtral)
  all_layers,    // sliding_window, 4096 where the key is absent (Mistral)
  upper_layers,  // sliding_window from layer max_window_layers on, if use_sliding_window (Qwen)
  switched,      // sliding_window on all layers, if use_sliding_window (Qwen's experts)
  not_fourths,   // sliding_window, but for every fourth layer counted from the last (Muse Glimmer)
};

// Which row of a stored tensor is row `row` of leq's: joined heads, where parts of several linears
// take turns. Sizes are those of the configuration.
struct RowOrder {
  std::int64_t (*stored_rows)(const ModelConfig& config);
  std::int64_t (*row)(const ModelConfig& config, std::int64_t row);
};

// Keys of a family with layers of Gated DeltaNet. Layer i attends where (i + 1) % interval == 0, or
// where layer_types says full_attention.
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
  const char* experts;  // and by its other name
  const char* experts_too;
  const char* active;
  const char* hidden;      // of one expert
  const char* normalized;  // nullptr: they always are
  bool normalized_if_absent = false;
  const char* sparse_step;   // layer i has experts where (i + 1) % step == 0
  const char* dense_layers;  // a list of layers without
  const char* shared_hidden;
};

// Where a tensor of leq lies in the checkpoint. Those of a head of multi-token prediction are named
// as the model's own, after a prefix. "{}" stands for the layer, the second one for the
// expert. Of several rules for one tensor the first counts whose source is there.
struct TensorRule {
  std::string_view leq;
  std::string_view source;
  bool transposed = false;  // stored [K][N]
  int part = 0;             // of `parts` equal groups of output channels joined in one tensor
  int parts = 1;
  bool stacked = false;               // [E][parts N][K], all experts in one tensor
  const RowOrder* order = nullptr;    // null: as they are stored
  float added = 0;                    // to each number: 1 for gains that are stored around zero
  bool taps_first = false;            // stored [channels][1][taps], leq's is [taps][channels]
  const RowOrder* columns = nullptr;  // the same of the columns
  bool log_of_negative = false;       // the logarithm of each number negated: GGUF has A for A_log
  bool normed_rows = false;           // each row becomes an RMS norm of itself, without gain
  float constant = 0;                 // no tensor: all numbers are this; 0 = there is one
  int column_part = 0;  // of `column_parts` equal groups of inputs joined in one tensor
  int column_parts = 1;
};

struct Family {
  std::string_view name;        // for people
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
  std::int64_t default_head_dim = 0;
  WindowRule windows = WindowRule::none;
  bool output_gate = false;           // of attention
  double partial_rotary = 1.0;        // of a head, where partial_rotary_factor is absent
  bool reads_partial_rotary = false;  // whether it may be another
  const DeltaKeys* delta = nullptr;
  std::optional<ExpertKeys> experts = {};
  bool query_temperature = false;  // llama_4_scaling_beta in rope_parameters
  bool is_muse = false;            // reads the keys of convert/hf_muse.h
  // Biases: fixed by the family, or switched by keys of config.json.
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  const char* attention_bias_key = nullptr;  // q, k, v and o
  const char* mlp_bias_key = nullptr;
  // Keys whose other values change the function in ways that leq does not compute.
  struct Fixed {
    const char* key;
    bool value;  // also where absent
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
