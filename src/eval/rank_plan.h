// What several ranks would do on a machine that is only described: bytes, waits and speed of a
// generated token, on paper (docs/ranks.md). Beside it the usual way, two all-reduces a block.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "model/model_config.h"
#include "tensor/weight_layout.h"

namespace leq {

// Assumptions, of one rank (a GPU): speeds as reached, not as advertised.
struct RankMachine {
  double read_gbps = 4000;       // of its memory
  double tera_ops = 1000;        // of 8-bit products
  int ranks_per_node = 8;        // joined by links; nodes are joined by a network
  double link_gbps = 350;        // that one rank receives from its node
  double link_microseconds = 6;  // of one exchange
  double network_gbps = 45;      // that one rank receives from other nodes
  double network_microseconds = 20;
};

// Of one step: a token of each of `sequences`, `depth` positions behind each.
struct RankPlan {
  int ranks = 1;
  std::int64_t sequences = 1;
  std::uint64_t weight_bytes = 0;    // that the rank with the most reads
  std::uint64_t kv_bytes = 0;        // likewise, of all sequences, in f16
  std::uint64_t received_bytes = 0;  // by one rank
  std::int64_t exchanges = 0;        // one after the other
  double work_seconds = 0;           // reading or multiplying, whichever takes longer
  double exchange_seconds = 0;
  double reduce_seconds = 0;  // of f16 all-reduces in their place, the better of two kinds

  double step_seconds() const { return work_seconds + exchange_seconds; }
  double tokens_per_second() const { return static_cast<double>(sequences) / step_seconds(); }
  double reduced_tokens_per_second() const {
    return static_cast<double>(sequences) / (work_seconds + reduce_seconds);
  }
};

// Bytes of a whole stored weight: "layers.3.q", "head".
using WeightBytes = std::function<std::uint64_t(std::string_view name)>;

// Bytes of a column of the rows that `weight` (an o or down) reads, as ranks exchange them: codes
// with a scale for each group of columns and what sums of codes it wants, or f32.
double exchanged_bytes(const WeightView& weight);

// exchanged_bytes of the model's o and of its down.
struct ColumnBytes {
  double o = 0, down = 0;
};

RankPlan plan_ranks_on_paper(const ModelConfig& config, const WeightBytes& bytes_of,
                             const ColumnBytes& columns, int ranks, std::int64_t sequences,
                             std::int64_t depth, const RankMachine& machine);

}  // namespace leq
