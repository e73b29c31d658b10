#include "eval/rank_plan.h"

#include <algorithm>

#include "base/error.h"
#include "model/sharding.h"
#include "model/tensor_list.h"

namespace leq {
namespace {

constexpr double kKvBytes = 2;  // f16
constexpr double kFloatBytes = 4;
constexpr double kReducedBytes = 2;  // f16, as engines that sum across ranks send

// The part of a tensor's rows that a rank has.
Slice rows_of(const TensorSpec& tensor, const RankShare& share, const ModelConfig& config) {
  const auto heads = [&](const Slice& slice) {
    return Slice{slice.first * config.head_dim, slice.last * config.head_dim};
  };
  switch (tensor.role) {
    case TensorRole::qkv:
      return heads(tensor.name.ends_with(".q") ? share.heads : share.kv_heads);
    case TensorRole::o:
    case TensorRole::down:
      return share.stream;
    case TensorRole::gate_up:
      return share.mlp;
    case TensorRole::head:
      return share.vocabulary;
    case TensorRole::vector:
    case TensorRole::token_embedding:
    case TensorRole::position_embedding:
      return {};
  }
  return {};
}

double weight_bytes_of(const ModelConfig& config, const WeightBytes& bytes_of,
                       const RankShare& share) {
  double bytes = 0;
  const auto add = [&](std::string_view name, const Slice& slice, std::int64_t rows) {
    bytes += static_cast<double>(bytes_of(name)) * static_cast<double>(slice.count()) /
             static_cast<double>(rows);
  };
  for (const TensorSpec& tensor : tensor_list(config)) {
    const Slice rows = rows_of(tensor, share, config);
    if (!rows.empty()) add(tensor.name, rows, tensor.shape[0]);
  }
  if (config.tied) add("token_embedding", share.vocabulary, config.vocab);
  return bytes;
}

double kv_bytes_of(const ModelConfig& config, const RankShare& share, std::int64_t depth) {
  double positions = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::int64_t window = config.window(layer);
    positions += static_cast<double>(window == 0 ? depth : std::min(window, depth));
  }
  return 2 * kKvBytes * positions * static_cast<double>(share.kv_heads.count() * config.head_dim);
}

// How a rank receives from the others: those of its node over links, the rest over the network.
struct Ways {
  double near = 0;  // other ranks of its node
  double far = 0;
  double microseconds = 0;  // of one exchange

  Ways(int ranks, const RankMachine& machine)
      : near(std::min(ranks, machine.ranks_per_node) - 1),
        far(std::max(0, ranks - machine.ranks_per_node)),
        microseconds(far > 0 ? machine.network_microseconds : machine.link_microseconds) {}

  // For `bytes` from each other rank.
  double seconds(double bytes, const RankMachine& machine) const {
    return std::max(near * bytes / machine.link_gbps, far * bytes / machine.network_gbps) / 1e9;
  }
};

}  // namespace

double exchanged_bytes(const WeightView& weight) {
  const int group = scale_columns(weight.act);
  if (group == 0) return kFloatBytes;
  constexpr double kCode = 1, kScale = 4, kSum = 4;
  double bytes = kCode + kScale / group;
  if (weight.scheme.is_offset()) {
    bytes += kSum / static_cast<double>(sum_group(weight.scheme, weight.act, weight.columns));
  }
  return bytes;
}

RankPlan plan_ranks_on_paper(const ModelConfig& config, const WeightBytes& bytes_of,
                             const ColumnBytes& columns, int ranks, std::int64_t sequences,
                             std::int64_t depth, const RankMachine& machine) {
  ensure(ranks > 0 && sequences > 0, "a plan of ", ranks, " ranks for ", sequences, " sequences");
  RankPlan plan;
  plan.ranks = ranks;
  plan.sequences = sequences;
  const auto rows = static_cast<double>(sequences);
  for (const RankShare& share : cut_model(config, ranks)) {
    const double weights = weight_bytes_of(config, bytes_of, share);
    const double kv = rows * kv_bytes_of(config, share, depth);
    plan.weight_bytes = std::max(plan.weight_bytes, static_cast<std::uint64_t>(weights));
    plan.kv_bytes = std::max(plan.kv_bytes, static_cast<std::uint64_t>(kv));
  }
  const double parameters =
      static_cast<double>(block_linear_parameters(config) + config.vocab * config.width);
  const double read = static_cast<double>(plan.weight_bytes + plan.kv_bytes) / machine.read_gbps;
  const double multiply = 2 * parameters * rows / ranks / (machine.tera_ops * 1e3);
  plan.work_seconds = std::max(read, multiply) / 1e9;
  if (ranks == 1) return plan;

  // Gathers: the attention output, the stream after o, the gated product, the stream after down.
  const auto query = static_cast<double>(config.heads * config.head_dim);
  const auto width = static_cast<double>(config.width), hidden = static_cast<double>(config.hidden);
  const auto layers = static_cast<double>(config.layers);
  const double block = columns.o * query + columns.down * hidden + 2 * kFloatBytes * width;
  const double logits = kFloatBytes * static_cast<double>(config.vocab);  // to the leader
  const double each = rows * (layers * block + logits) / ranks;
  const Ways ways(ranks, machine);
  plan.received_bytes = static_cast<std::uint64_t>(each * (ranks - 1));
  plan.exchanges = 4 * config.layers + 1;
  plan.exchange_seconds =
      ways.seconds(each, machine) + static_cast<double>(plan.exchanges) * ways.microseconds / 1e6;

  // Two all-reduces a block: every rank sends its whole rows to all others at once, or parts of
  // them are summed by their owners and gathered, in two exchanges.
  const double row = kReducedBytes * width * rows;
  const double at_once = ways.seconds(row, machine) + ways.microseconds / 1e6;
  const double in_parts = 2 * (ways.seconds(row / ranks, machine) + ways.microseconds / 1e6);
  plan.reduce_seconds = 2 * layers * std::min(at_once, in_parts) +
                        ways.seconds(rows * logits / ranks, machine) + ways.microseconds / 1e6;
  return plan;
}

}  // namespace leq
