// Qwen3-Next: Qwen 3.5's layers with experts, and with other names and row orders of the
// projections into Gated DeltaNet.
#include "families/experts.h"
#include "families/qwen3_5.h"

namespace leq {
namespace {

// The row layout of the joined projection: for each key head its rows of q, k, v and z.
struct JoinedHeads {
  std::int64_t key_dim, values, each;  // values: value rows per key head
  explicit JoinedHeads(const DeltaNetConfig& delta)
      : key_dim(delta.key_dim),
        values(delta.values() / delta.key_heads),
        each(2 * key_dim + 2 * values) {}

  std::int64_t query(std::int64_t row) const { return row / key_dim * each + row % key_dim; }
  std::int64_t value(std::int64_t row) const {
    return row / values * each + 2 * key_dim + row % values;
  }
};

std::int64_t joined_rows(const ModelConfig& config) {
  const DeltaNetConfig& delta = *config.delta_net();
  return delta.channels() + delta.values();
}

std::int64_t qkv_row(const ModelConfig& config, std::int64_t row) {
  const DeltaNetConfig& delta = *config.delta_net();
  const JoinedHeads heads(delta);
  if (row < delta.keys()) return heads.query(row);
  if (row < 2 * delta.keys()) return heads.query(row - delta.keys()) + delta.key_dim;
  return heads.value(row - 2 * delta.keys());
}

std::int64_t z_row(const ModelConfig& config, std::int64_t row) {
  const JoinedHeads heads(*config.delta_net());
  return heads.value(row) + heads.values;
}

// The row layout of the gates: for each key head b of its value heads, then a.
std::int64_t gate_rows(const ModelConfig& config) { return 2 * config.delta_net()->value_heads; }

std::int64_t b_row(const ModelConfig& config, std::int64_t row) {
  const std::int64_t group = config.delta_net()->value_heads / config.delta_net()->key_heads;
  return row / group * 2 * group + row % group;
}

std::int64_t a_row(const ModelConfig& config, std::int64_t row) {
  return b_row(config, row) + config.delta_net()->value_heads / config.delta_net()->key_heads;
}

constexpr RowOrder kQkvRows = {joined_rows, qkv_row}, kZRows = {joined_rows, z_row};
constexpr RowOrder kBRows = {gate_rows, b_row}, kARows = {gate_rows, a_row};

}  // namespace

extern const Family kQwen3Next;
const Family kQwen3Next = [] {
  Family family = qwen3_5_like("Qwen3-Next", "qwen3_next", "Qwen3NextForCausalLM");
  constexpr std::string_view kJoined = "layers.{}.linear_attn.in_proj_qkvz.weight";
  constexpr std::string_view kGates = "layers.{}.linear_attn.in_proj_ba.weight";
  const std::vector<TensorRule> projections = {
      {"layers.{}.delta_qkv", kJoined, {.order = &kQkvRows}},
      {"layers.{}.delta_z", kJoined, {.order = &kZRows}},
      {"layers.{}.delta_b", kGates, {.order = &kBRows}},
      {"layers.{}.delta_a", kGates, {.order = &kARows}},
  };
  family.tensors.insert(family.tensors.end(), projections.begin(), projections.end());
  family.experts = kQwenSharedExpertKeys;
  family.experts->normalized = "norm_topk_prob";
  family.experts->normalized_if_absent = true;
  add_single_experts(family);
  add_stacked_experts(family);
  add_shared_expert(family);
  return family;
}();

}  // namespace leq
