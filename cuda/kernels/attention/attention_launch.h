// Launch of attention by one of two kinds of kernels, selected in attention.cu: exact kernels in
// f32 (attention_exact*.cu), and kernels on tensor cores (one file for each KV type).
#pragma once

#include <algorithm>

#include "cuda/kernels/launch.h"
#include "cuda/layout/attention_scratch.h"

namespace leq::LEQ_GPU {

// The runs of a launch. A batch with generation and prompts needs a launch for each of the two.
enum class AttentionRuns : std::uint8_t { all, single, longer };

constexpr bool has_run(AttentionRuns which, int rows) {
  return which == AttentionRuns::all || (which == AttentionRuns::single) == (rows == 1);
}

// The partition of the work into blocks.
struct AttentionPlan {
  AttentionRuns which = AttentionRuns::all;
  int block_rows = 1;   // most rows of a block, all of one run
  int block_heads = 1;  // most heads of a block, all of one kv head
  int head_blocks = 1;  // blocks that the heads of one kv head take
  bool split = false;   // true: each span has its own block; false: a block iterates over all spans
  int spans = 1;        // spans of the longest row; with split also the size of the grid in z
  int first_block = 0;  // with split: index of the launch's first block among all blocks
  // with split: records are ordered by the launch's blocks; otherwise by the batch's rows
  bool placed_by_block = false;
  int tile_positions = 64;  // exact kernels: positions of a tile in shared memory: 64, 32 or 16
};

// Returns the number of rows, at most `rows`, whose records fit into scratch at the same time.
inline std::int64_t rows_at_once(const AttentionArguments& a, const AttentionPlan& plan,
                                 std::int64_t rows) {
  const std::int64_t capacity = a.most_records / (std::int64_t{a.heads.heads} * plan.spans);
  return std::min(rows, std::max<std::int64_t>(1, capacity));
}

// Calls launch(plan, blocks) for all `blocks` row blocks once. If the records of all `rows` do not
// fit into scratch, it does so for successive parts of the blocks. Outputs are the same.
template <class Launch>
void launch_in_parts(const AttentionArguments& a, AttentionPlan plan, std::int64_t rows,
                     std::int64_t blocks, Launch launch) {
  const std::int64_t at_once = rows_at_once(a, plan, rows);
  const bool in_parts = plan.split && rows > at_once;
  // Partly filled blocks leave unused record slots, so all blocks may need more slots than rows.
  plan.placed_by_block = in_parts || plan.block_rows == 1;
  const std::int64_t part = in_parts ? at_once / plan.block_rows : blocks;
  for (std::int64_t first = 0; first < blocks; first += part) {
    plan.first_block = static_cast<int>(first);
    launch(plan, std::min(part, blocks - first));
  }
}

void launch_exact_attention(const AttentionArguments& a, rt::Stream& stream);
// Supports packed keys, packed values, or both.
void launch_exact_packed(const AttentionArguments& a, const AttentionPlan& plan,
                         rt::Stream& stream);

// Keys and values must have the same packed type; head_dim is a multiple of 16 up to kPackedDims.
// `plan` and scratch are as for launch_tensor_attention.
inline constexpr int kPackedDims = 128;
void launch_packed_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream);

// Every block on tensor cores has at least this many queries, so this many heads can share a block.
inline constexpr int kFewestQueries = 16;

// head_dim must be a multiple of 16 up to 256; keys and values are both f16 or both int8. `plan`
// has split and spans. If split, blocks write records (o, m, l) of spans to scratch
// [T][H][spans][d + 2], and the last block joins them. T has an entry for each possible row.
template <KvType type>
void launch_tensor_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream);

}  // namespace leq::LEQ_GPU
