// The input of one forward pass: prefill, decode, evaluation and any mix of them.
#pragma once

#include <cstdint>
#include <vector>

namespace leq {

struct Batch {
  std::vector<std::int32_t> tokens;     // [T]; placeholder_id(row) after Operations::begin_sample
  std::vector<std::int32_t> sequences;  // [T] sequence of each row in the cache
  std::vector<std::int32_t> outputs;    // rows whose logits are wanted, ascending

  // Appends `count` tokens of one sequence; logits for none, the last, or all of them.
  enum class Want { none, last, all };
  void add(std::int32_t sequence, const std::int32_t* first, std::int64_t count, Want want) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (want == Want::all || (want == Want::last && i + 1 == count)) {
        outputs.push_back(static_cast<std::int32_t>(tokens.size()));
      }
      tokens.push_back(first[i]);
      sequences.push_back(sequence);
    }
  }
  void clear() {
    tokens.clear();
    sequences.clear();
    outputs.clear();
  }
};

}  // namespace leq
