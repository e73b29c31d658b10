// The blocks of activations that a forward pass works in, asked for once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace leq {

struct ForwardLimits {
  std::int64_t batch_tokens = 512;  // T: rows of one forward
  std::int64_t output_tokens = 1;   // rows with logits
  std::int64_t context = 0;         // positions of one sequence
};

class Workspace {
 public:
  Workspace(const ModelConfig& config, const Weights& weights, Backend& backend,
            const ForwardLimits& limits);

  Rows x;       // [T, W] the residual stream
  Rows qkv;     // [T, (H + 2 H_kv) d]
  Rows last;    // [outputs, W]
  Rows logits;  // [outputs, V]
  // The input block of a linear, in the format that it reads. Layers share blocks of one format.
  Rows& input_of(const Linear& linear);

  // What the constructor asks of a backend, from the header alone.
  static std::size_t bytes(const ModelConfig& config, const Weights& weights,
                           const Backend& backend, const ForwardLimits& limits);

 private:
  std::vector<Rows> inputs_;
  std::vector<std::pair<const Linear*, std::size_t>>
      index_;  // linear -> inputs_, sorted by address
};

}  // namespace leq
