// Estimates how several ranks perform on a machine that is only described: bytes, latencies and
// time of a token (docs/ranks.md). For comparison also the usual two all-reduces per block.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "model/model_config.h"
#include "tensor/weight_layout.h"

namespace leq {

// Assumptions about one rank (a GPU), with speeds as reached in practice, not as advertised.
struct RankMachine {
  double read_gbps = 4000;       // rate of memory reads
  double tera_ops = 1000;        // rate of operations on 8-bit products
  int ranks_per_node = 8;        // ranks with links; nodes are connected by a network
  double link_gbps = 350;        // rate at which a rank receives from its node
  double link_microseconds = 6;  // latency of one exchange
  double network_gbps = 45;      // rate at which a rank receives from other nodes
  double network_microseconds = 20;
};

// Estimates for a step with one token of each of `sequences`, with `depth` cached positions each.
struct RankPlan {
  int ranks = 1;
  std::int64_t sequences = 1;
  std::uint64_t weight_bytes = 0;    // on the rank with the most weights
  std::uint64_t kv_bytes = 0;        // on the rank with the most KV heads; all sequences, in f16
  std::uint64_t received_bytes = 0;  // received by one rank
  std::int64_t exchanges = 0;        // number of exchanges, one after another
  double work_seconds = 0;           // reading or multiplying, whichever takes longer
  double exchange_seconds = 0;
  double reduce_seconds = 0;  // time of f16 all-reduces instead, by the faster of two algorithms

  double step_seconds() const { return work_seconds + exchange_seconds; }
  double tokens_per_second() const { return static_cast<double>(sequences) / step_seconds(); }
  double reduced_tokens_per_second() const {
    return static_cast<double>(sequences) / (work_seconds + reduce_seconds);
  }
};

// Returns the bytes of a complete stored weight by its name: "layers.3.q", "head".
using WeightBytes = std::function<std::uint64_t(std::string_view name)>;

// Bytes per column of the rows that `weight` (an o or down) reads, in the format in which ranks
// exchange them: codes with a scale per group of columns and with sums of codes if needed, or f32.
double exchanged_bytes(const WeightView& weight);

// Result of exchanged_bytes for the model's o and for its down weights.
struct ColumnBytes {
  double o = 0, down = 0;
};

RankPlan plan_ranks_on_paper(const ModelConfig& config, const WeightBytes& bytes_of,
                             const ColumnBytes& columns, int ranks, std::int64_t sequences,
                             std::int64_t depth, const RankMachine& machine);

}  // namespace leq
