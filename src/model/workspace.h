// All that a forward pass takes of a device beside weights and cache, asked for once: blocks of
// activations, tables, scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/layout.h"
#include "backend/tables.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "model/weights.h"

namespace leq {

struct ForwardLimits {
  std::int64_t batch_tokens = 512;  // T: rows of one forward
  std::int64_t output_tokens = 1;   // rows with logits
  std::int64_t context = 0;         // positions of one sequence
};

AttentionShape attention_shape(const ModelConfig& config, const Block& block, std::int64_t layer);

// Who reads a block of rows. Blocks that live at the same time have different readers.
enum class Reader : std::uint8_t { qkv, o, gate_up, down, head };

// The moving scale of one linear's inputs.
struct OnlineInput {
  const Linear* linear;
  OnlineScale scale;
};

class Workspace {
 public:
  // All of them must outlive the workspace.
  Workspace(const ModelConfig& config, const Weights& weights, DeviceMemory& memory,
            const Layout& layout, const ForwardLimits& limits);

  const RopeFrequencies frequencies;  // that `rope` reads
  RopeTable rope;
  RotationTable rotation;  // block 0 where the stream is not rotated
  Rows x;                  // [T, W] the residual stream
  Rows qkv;                // [T, (H + 2 H_kv) d]
  Rows last;               // [outputs, W]
  Rows logits;             // [outputs, V]

  // The input block of a linear in the format that it reads, and what the linear wants of it;
  // layers share the blocks of one format.
  RowsFor input_of(Reader reader, const Linear& linear);
  // Linears with a moving scale in the order of a forward pass: what they remember of their inputs.
  std::span<OnlineInput> online() { return online_; }

 private:
  struct Input {
    Reader reader;
    RowsFormat format;
    Rows rows;
  };
  const Layout& layout_;
  std::vector<Input> inputs_;
  std::vector<OnlineInput> online_;
};

}  // namespace leq
