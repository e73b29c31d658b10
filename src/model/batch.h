// The input of one forward pass: any combination of tokens of prefill, decode and evaluation.
#pragma once

#include <cstdint>
#include <vector>

namespace leq {

struct Batch {
  std::vector<std::int32_t> tokens;     // [T]; drawn_id(row) if the device sampled the token
  std::vector<std::int32_t> sequences;  // [T] KV-cache sequence of each row
  std::vector<std::int32_t> outputs;    // rows whose logits are needed, ascending

  // Appends `count` tokens of one sequence; Want selects the tokens that get a row of logits.
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
