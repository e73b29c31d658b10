// The blocks of activations that a forward pass works in, asked for once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

// Who reads a block of rows. Blocks that live at the same time have different readers.
enum class Reader : std::uint8_t { qkv, o, gate_up, down, head };

// The moving scale of one linear's inputs.
struct OnlineInput {
  const Linear* linear;
  OnlineScale scale;
};

class Workspace {
 public:
  Workspace(const ModelConfig& config, const Weights& weights, Backend& backend,
            const ForwardLimits& limits);

  Rows x;       // [T, W] the residual stream
  Rows qkv;     // [T, (H + 2 H_kv) d]
  Rows last;    // [outputs, W]
  Rows logits;  // [outputs, V]
  // The input block of a linear in the format that it reads, ready to be written for it; layers
  // share the blocks of one format.
  Rows& input_of(Reader reader, const Linear& linear);
  // Linears with act online in the order of a forward pass: what they remember of their inputs.
  std::span<OnlineInput> online() { return online_; }

  // What the constructor asks of the backend, from the header alone.
  static std::size_t bytes(const ModelConfig& config, const Weights& weights,
                           const Backend& backend, const ForwardLimits& limits);

 private:
  struct Input {
    Reader reader;
    RowsFormat format;
    Rows rows;
  };
  const Backend& backend_;
  std::vector<Input> inputs_;
  std::vector<OnlineInput> online_;
};

}  // namespace leq
