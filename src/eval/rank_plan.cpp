#include "eval/rank_plan.h"

#include <algorithm>

#include "base/error.h"
#include "model/linear_sites.h"
#include "model/sharding.h"

namespace leq {
namespace {

constexpr double kKvBytes = 2;  // bytes of f16
constexpr double kFloatBytes = 4;
constexpr double kReducedBytes = 2;  // f16, as in other engines' all-reduces

double weight_bytes_of(const ModelConfig& config, const WeightBytes& bytes_of,
                       const RankShare& share) {
  double bytes = 0;
  const auto add = [&](std::string_view name, const Slice& slice, std::int64_t rows,
                       double share_of_steps) {
    if (slice.empty()) return;
    bytes += static_cast<double>(bytes_of(name)) * static_cast<double>(slice.count()) /
             static_cast<double>(rows) * share_of_steps;
  };
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (const LinearSite& site : linear_sites(config, layer)) {
      for (const LinearSpec& weight : site.weights) {
        for (const Slice& rows : share.rows(weight.axis, weight.outputs)) {
          add(layer_tensor(layer, weight.name), rows, weight.outputs, weight.share);
        }
      }
    }
  }
  add(config.tied ? "token_embedding" : "head", share.vocabulary, config.vocab, 1);
  return bytes;
}

double kv_bytes_of(const ModelConfig& config, const RankShare& share, std::int64_t depth) {
  double positions = 0;
  for (const std::int64_t layer : config.attention_layers()) {
    const std::int64_t window = config.window(layer);
    positions += static_cast<double>(window == 0 ? depth : std::min(window, depth));
  }
  return 2 * kKvBytes * positions * static_cast<double>(share.kv_heads.count() * config.head_dim);
}

// Numbers of ranks that a rank reaches over links (in its node) and over the network (other nodes).
struct PeerLinks {
  double near = 0;  // other ranks in the same node
  double far = 0;
  double microseconds = 0;  // latency of one exchange

  PeerLinks(int ranks, const RankMachine& machine)
      : near(std::min(ranks, machine.ranks_per_node) - 1),
        far(std::max(0, ranks - machine.ranks_per_node)),
        microseconds(far > 0 ? machine.network_microseconds : machine.link_microseconds) {}

  // Seconds to receive `bytes` bytes from each of the other ranks.
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

RankPlan estimate_rank_plan(const ModelConfig& config, const WeightBytes& bytes_of,
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
      active_linear_parameters(config) + static_cast<double>(config.vocab * config.width);
  const double read = static_cast<double>(plan.weight_bytes + plan.kv_bytes) / machine.read_gbps;
  const double multiply = 2 * parameters * rows / ranks / (machine.tera_ops * 1e3);
  plan.work_seconds = std::max(read, multiply) / 1e9;
  if (ranks == 1) return plan;

  // Sums up the gathers: attention output, stream after o, gated product, stream after down.
  const auto width = static_cast<double>(config.width);
  double gathered = 0;  // bytes gathered per row, over all layers
  std::int64_t inner_sites = 0;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    std::string block;  // block of experts that are gathered together
    for (const LinearSite& site : linear_sites(config, layer)) {
      if (site.norm) continue;  // not gathered: each rank norms whole rows
      const double column = site.sublayer == Sublayer::mixer ? columns.o : columns.down;
      gathered += column * static_cast<double>(site.inputs) * site.share();
      if (site.block_name() == block) continue;
      block = site.block_name();
      gathered += kFloatBytes * width;
      ++inner_sites;
    }
  }
  const double logits = kFloatBytes * static_cast<double>(config.vocab);  // gathered by the leader
  const double each = rows * (gathered + logits) / ranks;
  const PeerLinks links(ranks, machine);
  plan.received_bytes = static_cast<std::uint64_t>(each * (ranks - 1));
  plan.exchanges = 2 * inner_sites + 1;
  plan.exchange_seconds =
      links.seconds(each, machine) + static_cast<double>(plan.exchanges) * links.microseconds / 1e6;

  // For comparison, one all-reduce for each linear that adds to the stream. It takes one exchange
  // if every rank sends whole rows to all others, or two as reduce-scatter and all-gather.
  const double row = kReducedBytes * width * rows;
  const double at_once = links.seconds(row, machine) + links.microseconds / 1e6;
  const double in_parts = 2 * (links.seconds(row / ranks, machine) + links.microseconds / 1e6);
  plan.reduce_seconds = static_cast<double>(inner_sites) * std::min(at_once, in_parts) +
                        links.seconds(rows * logits / ranks, machine) + links.microseconds / 1e6;
  return plan;
}

}  // namespace leq
