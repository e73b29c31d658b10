// All that a forward pass takes of a device beside weights and cache, asked for once: blocks of
// activations, tables, scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/layout.h"
#include "backend/tables.h"
#include "comm/communicator.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "model/sharding.h"
#include "model/weights.h"

namespace leq {

struct ForwardLimits {
  std::int64_t batch_tokens = 512;   // T: rows of one forward
  std::int64_t output_tokens = 1;    // rows with logits
  std::int64_t context = 0;          // positions of one sequence
  bool keys_turn_when_read = false;  // KvScheme::before_rope
};

// Of the heads of a rank.
AttentionShape attention_shape(const ModelConfig& config, const Block& block, std::int64_t layer,
                               const RankShare& share);

// Who reads a block of rows. Blocks that live at the same time have different readers.
enum class Reader : std::uint8_t { qkv, o, gate_up, down, head };

// The moving scale of one linear's inputs.
struct OnlineInput {
  const Linear* linear;
  OnlineScale scale;
};

// A block that ranks write together: the whole of it, and what this one writes.
struct SharedBlock {
  RowsFor whole;
  RowsFor own;
  std::span<const Slice> columns;  // [ranks]
};

class Workspace {
 public:
  // All of them must outlive the workspace. `weights` are those of the rank.
  Workspace(const ModelConfig& config, const Weights& weights, DeviceMemory& memory,
            const Layout& layout, const ForwardLimits& limits, const RankPlace& place);

  const RopeFrequencies frequencies;  // that `rope` reads
  RopeTable rope;
  RotationTable rotation;  // block 0 where the stream is not rotated
  Rows x;                  // [T, W] the residual stream
  Rows qkv;                // [T, (H + 2 H_kv) d] of the rank's heads
  Rows last;               // [outputs, W]
  Rows logits;             // [outputs, V]; of ranks that do not lead, their columns
  Buffer exchange;         // for what other ranks send (Operations::connect)

  // The input block of a linear in the format that it reads, and what the linear wants of it;
  // layers share the blocks of one format.
  RowsFor input_of(Reader reader, const Linear& linear);
  // The same for inputs that ranks make together: of o and down.
  SharedBlock shared_input_of(Reader reader, const Linear& linear);
  SharedBlock shared_stream();  // x
  SharedBlock shared_logits();
  // Ranks that are threads of one process work on the leader's x and, where columns are coded
  // apart, inputs of o and down: each writes its columns, none copies another's. All call it once.
  void share(Communicator& ranks);
  // Of a linear whose inputs are made of whole rows: the leader's block, which ranks may fill
  // together, each some rows; nullopt where a row's codes depend on others, or nothing is shared.
  std::optional<RowsFor> common_input_of(Reader reader, const Linear& linear);
  // Linears with a moving scale in the order of a forward pass: what they remember of their inputs.
  std::span<OnlineInput> online() { return online_; }

 private:
  struct Input {
    Reader reader;
    RowsFormat format;
    Rows rows;
    Rows own = {};     // the rank's columns, where it makes some of them
    Rows common = {};  // the leader's block, where ranks share it
  };
  Input& find(Reader reader, const Linear& linear);
  RowsConsumer consumer_of(const Linear& linear);
  const std::vector<Slice>& columns_of(Reader reader) const;

  bool alone_;
  std::size_t rank_;
  std::vector<Slice> attention_, mlp_, stream_, vocabulary_;  // [ranks]
  Rows own_x_, own_logits_;
  const Layout& layout_;
  std::vector<Input> inputs_;
  std::vector<OnlineInput> online_;
};

}  // namespace leq
