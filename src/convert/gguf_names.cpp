// Names of tensors in GGUF files, and how their converters store the weights of Gated DeltaNet.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "convert/gguf_config.h"
#include "families/family.h"
#include "format/gguf.h"

namespace leq {

namespace {

// Gated DeltaNet in GGUF files: llama.cpp's keys and tensor names, and the transformations of the
// weights by its converter.

struct DeltaName {
  std::string_view leq, gguf;
};
constexpr std::array<DeltaName, 12> kDeltaNames = {{
    {"layers.{}.attention_gate", "blk.{}.attn_q.weight"},
    {"layers.{}.delta_in_norm", "blk.{}.attn_norm.weight"},
    {"layers.{}.delta_qkv", "blk.{}.attn_qkv.weight"},
    {"layers.{}.delta_z", "blk.{}.attn_gate.weight"},
    {"layers.{}.delta_b", "blk.{}.ssm_beta.weight"},
    {"layers.{}.delta_a", "blk.{}.ssm_alpha.weight"},
    {"layers.{}.delta_conv", "blk.{}.ssm_conv1d.weight"},
    {"layers.{}.delta_a_log", "blk.{}.ssm_a"},
    {"layers.{}.delta_dt_bias", "blk.{}.ssm_dt.bias"},
    {"layers.{}.delta_norm", "blk.{}.ssm_norm.weight"},
    {"layers.{}.delta_out", "blk.{}.ssm_out.weight"},
    {"layers.{}.mlp_norm", "blk.{}.post_attention_norm.weight"},
}};

// Qwen3-Next stores b and a in one tensor, interleaved by key head as in its checkpoints.
bool joins_gates(const Family& family) { return family.model_type == "qwen3_next"; }

// leq's value head h is stored at index (h % r) * H_k + h / r, where r is the number of value
// heads per key head, because ggml broadcasts key heads in that order.
std::int64_t in_turns(const DeltaNetConfig& delta, std::int64_t row, std::int64_t rows_of_head) {
  const std::int64_t head = row / rows_of_head;
  const std::int64_t group = delta.value_heads / delta.key_heads;
  const std::int64_t stored = head % group * delta.key_heads + head / group;
  return stored * rows_of_head + row % rows_of_head;
}

std::int64_t value_head(const ModelConfig& config, std::int64_t row) {
  return in_turns(*config.delta_net(), row, 1);
}
std::int64_t value_row(const ModelConfig& config, std::int64_t row) {
  return in_turns(*config.delta_net(), row, config.delta_net()->value_dim);
}
std::int64_t channel(const ModelConfig& config, std::int64_t row) {
  const std::int64_t keys = 2 * config.delta_net()->keys();
  return row < keys ? row : keys + value_row(config, row - keys);
}

constexpr RowOrder kHeads = {
    [](const ModelConfig& config) { return config.delta_net()->value_heads; }, value_head};
constexpr RowOrder kValues = {
    [](const ModelConfig& config) { return config.delta_net()->values(); }, value_row};
constexpr RowOrder kChannels = {
    [](const ModelConfig& config) { return config.delta_net()->channels(); }, channel};

struct DeltaOrder {
  std::string_view leq;
  const RowOrder* order;
};
constexpr std::array<DeltaOrder, 7> kTurns = {{{"layers.{}.delta_qkv", &kChannels},
                                               {"layers.{}.delta_z", &kValues},
                                               {"layers.{}.delta_b", &kHeads},
                                               {"layers.{}.delta_a", &kHeads},
                                               {"layers.{}.delta_conv", &kChannels},
                                               {"layers.{}.delta_a_log", &kHeads},
                                               {"layers.{}.delta_dt_bias", &kHeads}}};

void store_interleaved(TensorRule& rule) {
  const auto* found = std::ranges::find(kTurns, rule.leq, &DeltaOrder::leq);
  if (found != kTurns.end()) rule.layout.order = found->order;
  if (rule.leq == "layers.{}.delta_out") rule.layout.columns = &kValues;
}

// Early GGUF files of Qwen3-Next have its checkpoints' joined tensor instead of qkv and z.
void store_as_next(Family& family) {
  std::vector<TensorRule> joined;
  for (TensorRule& rule : family.tensors) {
    if (rule.leq != "layers.{}.delta_qkv" && rule.leq != "layers.{}.delta_z") continue;
    joined.push_back(rule);
    joined.back().source = "blk.{}.ssm_in.weight";
    rule.layout.order = nullptr;
  }
  family.tensors.insert(family.tensors.end(), joined.begin(), joined.end());
}

// The GGUF name, such as "blk.{}.ssm_out.weight"; empty if the family of `rule` is not hybrid, or
// if the tensor has the same name as in files of other families.
std::string_view gguf_delta_name(const TensorRule& rule, const Family& family) {
  if (family.delta == nullptr) return {};
  const bool gate = rule.leq == "layers.{}.delta_b" || rule.leq == "layers.{}.delta_a";
  if (gate && joins_gates(family)) return "blk.{}.ssm_ba.weight";
  const auto* found = std::ranges::find(kDeltaNames, rule.leq, &DeltaName::leq);
  return found == kDeltaNames.end() ? std::string_view() : found->gguf;
}

// Adapts the rules, in place, to the stored values: gains include their offset of 1, A is stored as
// minus exp(A_log), and Qwen 3.5 interleaves value heads across key heads.
void store_delta_as_gguf(Family& family) {
  if (family.delta == nullptr) return;
  for (TensorRule& rule : family.tensors) {
    rule.transform = {.log_of_negative = rule.leq == "layers.{}.delta_a_log"};
    if (!joins_gates(family)) store_interleaved(rule);
  }
  if (joins_gates(family)) store_as_next(family);
  const auto bias = std::ranges::find(family.tensors, "layers.{}.delta_dt_bias", &TensorRule::leq);
  TensorRule plain = *bias;
  plain.source = "blk.{}.ssm_dt";  // Ollama's name
  family.tensors.push_back(plain);
}

// leq's tensor names and those of GGUF, without ".weight" and ".bias".
constexpr std::array<std::pair<std::string_view, std::string_view>, 19> kTensorNames = {{
    {"token_embedding", "token_embd"},
    {"position_embedding", "position_embd"},
    {"final_norm", "output_norm"},
    {"layers.{}.attention_norm", "blk.{}.attn_norm"},
    {"layers.{}.q", "blk.{}.attn_q"},
    {"layers.{}.k", "blk.{}.attn_k"},
    {"layers.{}.v", "blk.{}.attn_v"},
    {"layers.{}.q_norm", "blk.{}.attn_q_norm"},
    {"layers.{}.k_norm", "blk.{}.attn_k_norm"},
    {"layers.{}.attention_gate", "blk.{}.attn_gate"},
    {"layers.{}.o", "blk.{}.attn_output"},
    {"layers.{}.attention_sinks", "blk.{}.attn_sinks"},
    {"layers.{}.attention_post_norm", "blk.{}.post_attention_norm"},
    {"layers.{}.mlp_norm", "blk.{}.ffn_norm"},
    {"layers.{}.gate", "blk.{}.ffn_gate"},
    {"layers.{}.up", "blk.{}.ffn_up"},
    {"layers.{}.down", "blk.{}.ffn_down"},
    {"layers.{}.mlp_post_norm", "blk.{}.post_ffw_norm"},
    {"head", "output"},
}};

std::string gguf_name(const TensorRule& rule) {
  constexpr std::string_view kBias = ".bias";
  const bool bias = rule.leq.ends_with(kBias);
  const std::string_view base = rule.leq.substr(0, rule.leq.size() - (bias ? kBias.size() : 0));
  const auto found =
      std::ranges::find(kTensorNames, base, [](const auto& pair) { return pair.first; });
  ensure(found != kTensorNames.end(), "GGUF has no name for tensor ", rule.leq);
  const bool of_mlp = base == "layers.{}.gate" || base == "layers.{}.up";
  const std::string name(rule.layout.parts == 1 ? found->second
                         : of_mlp               ? "blk.{}.ffn_up"
                                                : "blk.{}.attn_qkv");
  return name + (bias ? ".bias" : ".weight");
}

// GGUF's names of tensors that only files of one family have, by their names in Hugging Face's
// checkpoints; those without one are made, as the gain of a norm.
struct OwnName {
  std::string_view model_type, source, gguf;
};
constexpr std::array<OwnName, 21> kOwnNames = {{
    {"gpt_oss", "layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {"lfm2", "embedding_norm.weight", "token_embd_norm.weight"},
    {"lfm2", "layers.{}.operator_norm.weight", "blk.{}.attn_norm.weight"},
    {"lfm2", "layers.{}.conv.in_proj.weight", "blk.{}.shortconv.in_proj.weight"},
    {"lfm2", "layers.{}.conv.conv.weight", "blk.{}.shortconv.conv.weight"},
    {"lfm2", "layers.{}.conv.out_proj.weight", "blk.{}.shortconv.out_proj.weight"},
    {"gemma4", "", ""},
    {"gemma4", "layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"gemma4", "layers.{}.pre_feedforward_layernorm_2.weight", "blk.{}.pre_ffw_norm_2.weight"},
    {"gemma4", "layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    {"gemma4", "layers.{}.post_feedforward_layernorm_1.weight", "blk.{}.post_ffw_norm_1.weight"},
    {"gemma4", "layers.{}.post_feedforward_layernorm_2.weight", "blk.{}.post_ffw_norm_2.weight"},
    {"gemma4", "layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale"},
    {"gemma4", "layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale"},
    {"gemma4", "layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight"},
    {"gemma4", "embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"gemma4", "per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"gemma4", "per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    {"gemma4", "layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight"},
    {"gemma4", "layers.{}.per_layer_projection.weight", "blk.{}.proj.weight"},
    {"gemma4", "layers.{}.post_per_layer_input_norm.weight", "blk.{}.post_norm.weight"},
}};

// The GGUF name of a tensor rule in the model's architecture.
std::string gguf_name(const TensorRule& rule, const GgufModel& model) {
  const std::string_view of_delta = gguf_delta_name(rule, model.family);
  const auto* own = std::ranges::find_if(kOwnNames, [&](const OwnName& name) {
    return model.family.model_type.starts_with(name.model_type) && rule.source == name.source;
  });
  if (own != kOwnNames.end()) return std::string(own->gguf);
  return of_delta.empty() ? gguf_name(rule) : std::string(of_delta);
}

// Expert tensors: one tensor for all experts, or one per expert as older converters wrote them.
constexpr std::array<TensorRule, 18> kExpertRules = {{
    {"layers.{}.router", "blk.{}.ffn_gate_inp.weight"},
    {"layers.{}.router.bias", "blk.{}.ffn_gate_inp.bias"},
    {"layers.{}.choice_bias", "blk.{}.exp_probs_b.bias"},
    {"layers.{}.experts.{}.gate.bias", "blk.{}.ffn_gate_exps.bias", {.stacked = true}},
    {"layers.{}.experts.{}.up.bias", "blk.{}.ffn_up_exps.bias", {.stacked = true}},
    {"layers.{}.experts.{}.down.bias", "blk.{}.ffn_down_exps.bias", {.stacked = true}},
    {"layers.{}.experts.{}.gate",
     "blk.{}.ffn_gate_up_exps.weight",
     {.part = 0, .parts = 2, .stacked = true}},
    {"layers.{}.experts.{}.up",
     "blk.{}.ffn_gate_up_exps.weight",
     {.part = 1, .parts = 2, .stacked = true}},
    {"layers.{}.experts.{}.gate", "blk.{}.ffn_gate_exps.weight", {.stacked = true}},
    {"layers.{}.experts.{}.up", "blk.{}.ffn_up_exps.weight", {.stacked = true}},
    {"layers.{}.experts.{}.down", "blk.{}.ffn_down_exps.weight", {.stacked = true}},
    {"layers.{}.experts.{}.gate", "blk.{}.ffn_gate.{}.weight"},
    {"layers.{}.experts.{}.up", "blk.{}.ffn_up.{}.weight"},
    {"layers.{}.experts.{}.down", "blk.{}.ffn_down.{}.weight"},
    {"layers.{}.shared_gate", "blk.{}.ffn_gate_inp_shexp.weight"},
    {"layers.{}.shared.gate", "blk.{}.ffn_gate_shexp.weight"},
    {"layers.{}.shared.up", "blk.{}.ffn_up_shexp.weight"},
    {"layers.{}.shared.down", "blk.{}.ffn_down_shexp.weight"},
}};

bool is_of_experts(const TensorRule& rule) {
  return std::ranges::find(kExpertRules, rule.leq, &TensorRule::leq) != kExpertRules.end();
}

// Whether a rule belongs to the multi-token prediction head, which is not imported.
bool is_of_mtp(const TensorRule& rule) {
  constexpr std::array<std::string_view, 4> kNames = {"embedding_norm", "hidden_norm",
                                                      "fc_embedding", "fc_hidden"};
  return std::ranges::find(kNames, rule.leq) != kNames.end();
}

}  // namespace

void name_tensors(const Family& family, GgufModel& model) {
  model.family = family;
  std::erase_if(model.family.tensors, is_of_experts);
  std::erase_if(model.family.tensors, is_of_mtp);
  for (const TensorRule& rule : model.family.tensors) {
    model.names.push_back(gguf_name(rule, model));
  }
  for (std::size_t i = 0; i < model.names.size(); ++i) {
    TensorRule& rule = model.family.tensors[i];
    rule.source = model.names[i];
    rule.layout.transposed = false;
    if (rule.source.empty()) continue;
    rule.transform = {.normed_rows = rule.transform.normed_rows,
                      .divisor_key = rule.transform.divisor_key,
                      .by_root_width = rule.transform.by_root_width};
  }
  store_delta_as_gguf(model.family);
  if (family.experts) {
    model.family.tensors.insert(model.family.tensors.end(), kExpertRules.begin(),
                                kExpertRules.end());
  }
  model.family.prefixes = {""};
  model.family.head = "output.weight";
  model.family.ignored = {
      "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight",
      ".attn_rot_embd",    "cls.output.weight",        "dense_2.weight",
      "dense_3.weight"};
}

void read_gguf_delta(const GgufMetadata& metadata, const std::string& prefix, const Family& family,
                     Json& config) {
  if (family.delta == nullptr) return;
  const auto count = [&](const char* key) {
    const auto value = metadata.equal_integer(prefix + key);
    require(value && *value > 0, metadata.source(), ": key ", prefix, key,
            value ? " is not above 0" : " is missing");
    return *value;
  };
  const std::int64_t heads = count("ssm.time_step_rank"), inner = count("ssm.inner_size");
  require(inner % heads == 0, metadata.source(), ": key ", prefix, "ssm.inner_size is ", inner,
          ", no multiple of ", heads, " value heads");
  const DeltaKeys& keys = *family.delta;
  config[keys.key_heads] = count("ssm.group_count");
  config[keys.value_heads] = heads;
  config[keys.key_dim] = count("ssm.state_size");
  config[keys.value_dim] = inner / heads;
  config[keys.taps] = count("ssm.conv_kernel");
  config[keys.interval] = metadata.equal_integer(prefix + "full_attention_interval").value_or(4);
  // Ollama's key for the order of value heads. Both orders are the same if a key head has one.
  const bool tiled = metadata.flag(prefix + "ssm.v_head_reordered").value_or(!joins_gates(family));
  require(tiled != joins_gates(family) || heads == config[keys.key_heads].get<std::int64_t>(),
          metadata.source(), ": key ", prefix, "ssm.v_head_reordered is ", tiled ? "true" : "false",
          ", which is not supported for ", family.name);
}

}  // namespace leq
