#include "convert/gguf_delta.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace leq {
namespace {

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

std::int64_t value_heads(const ModelConfig& config) { return config.delta_net()->value_heads; }
std::int64_t values(const ModelConfig& config) { return config.delta_net()->values(); }
std::int64_t channels(const ModelConfig& config) { return config.delta_net()->channels(); }

constexpr RowOrder kHeads = {value_heads, value_head}, kValues = {values, value_row},
                   kChannels = {channels, channel};

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

void store_in_turns(TensorRule& rule) {
  const auto* found = std::ranges::find(kTurns, rule.leq, &DeltaOrder::leq);
  if (found != kTurns.end()) rule.order = found->order;
  if (rule.leq == "layers.{}.delta_out") rule.columns = &kValues;
}

// Early GGUF files of Qwen3-Next have its checkpoints' joined tensor instead of qkv and z.
void store_as_next(Family& family) {
  std::vector<TensorRule> joined;
  for (TensorRule& rule : family.tensors) {
    if (rule.leq != "layers.{}.delta_qkv" && rule.leq != "layers.{}.delta_z") continue;
    joined.push_back(rule);
    joined.back().source = "blk.{}.ssm_in.weight";
    rule.order = nullptr;
  }
  family.tensors.insert(family.tensors.end(), joined.begin(), joined.end());
}

}  // namespace

std::string_view gguf_delta_name(const TensorRule& rule, const Family& family) {
  if (family.delta == nullptr) return {};
  const bool gate = rule.leq == "layers.{}.delta_b" || rule.leq == "layers.{}.delta_a";
  if (gate && joins_gates(family)) return "blk.{}.ssm_ba.weight";
  const auto* found = std::ranges::find(kDeltaNames, rule.leq, &DeltaName::leq);
  return found == kDeltaNames.end() ? std::string_view() : found->gguf;
}

void store_delta_as_gguf(Family& family) {
  if (family.delta == nullptr) return;
  for (TensorRule& rule : family.tensors) {
    rule.added = 0;
    rule.log_of_negative = rule.leq == "layers.{}.delta_a_log";
    if (!joins_gates(family)) store_in_turns(rule);
  }
  if (joins_gates(family)) store_as_next(family);
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
}

}  // namespace leq
