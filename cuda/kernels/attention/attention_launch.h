// Attention launches: one of two kinds of kernels, exact ones in f32 (attention_exact*.cu) and
// those on tensor cores (one file for each type), chosen in attention.cu.
#pragma once

#include <algorithm>

#include "cuda/kernels/launch.h"
#include "cuda/layout/attention_scratch.h"

namespace leq::LEQ_GPU {

// The runs of a launch. A batch of generation beside a prompt takes two launches: one shape each.
enum class AttentionRuns : std::uint8_t { all, single, longer };

constexpr bool has_run(AttentionRuns which, int rows) {
  return which == AttentionRuns::all || (which == AttentionRuns::single) == (rows == 1);
}

// The partition of the work into blocks.
struct AttentionPlan {
  AttentionRuns which = AttentionRuns::all;
  int block_rows = 1;   // rows of one run in a block
  int block_heads = 1;  // heads of a kv head in a block
  int head_blocks = 1;  // blocks that the heads of a kv head make
  bool split = false;   // a block for each span; else one loops over all
  int spans = 1;        // of the longest row, blocks in z with split
  int first_block = 0;  // split: first of the launch among all blocks
  // split: records are in the order of the launch's blocks, else of the batch's rows
  bool placed_by_block = false;
  int tile_positions = 64;  // exact: of keys or values in shared memory, 64, 32 or 16
};

// The number of rows, at most `rows`, whose records fit into scratch at once.
inline std::int64_t rows_at_once(const AttentionArguments& a, const AttentionPlan& plan,
                                 std::int64_t rows) {
  const std::int64_t capacity = a.most_records / (std::int64_t{a.heads.heads} * plan.spans);
  return std::min(rows, std::max<std::int64_t>(1, capacity));
}

// Calls launch(plan, blocks) for all `blocks` of rows: at once or, where the records of all `rows`
// do not fit into scratch, in successive parts. No number depends on it.
template <class Launch>
void launch_in_parts(const AttentionArguments& a, AttentionPlan plan, std::int64_t rows,
                     std::int64_t blocks, Launch launch) {
  const std::int64_t at_once = rows_at_once(a, plan, rows);
  const bool in_parts = plan.split && rows > at_once;
  // Partly filled blocks leave gaps: all blocks at once may need more records than rows.
  plan.placed_by_block = in_parts || plan.block_rows == 1;
  const std::int64_t part = in_parts ? at_once / plan.block_rows : blocks;
  for (std::int64_t first = 0; first < blocks; first += part) {
    plan.first_block = static_cast<int>(first);
    launch(plan, static_cast<unsigned>(std::min(part, blocks - first)));
  }
}

void launch_exact_attention(const AttentionArguments& a, rt::Stream& stream);
// For packed keys, packed values or both.
void launch_exact_packed(const AttentionArguments& a, const AttentionPlan& plan,
                         rt::Stream& stream);

// For keys and values of one packed type, head_dim a multiple of 16 up to kPackedDims; `plan` and
// scratch as below.
inline constexpr int kPackedDims = 128;
template <int bits, int group>
void launch_packed_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream);

// Queries that every block on tensor cores fits: so many heads of a kv head share a block.
inline constexpr int kFewestQueries = 16;

// head_dim a multiple of 16 up to 256; both f16 or both int8. `plan` has split and spans. With
// split, blocks write records (o, m, l) of spans to scratch, [T][H][spans][d + 2], which the last
// of them joins; T are the rows of the launch, one slot for each row that a block may have.
template <KvType keys, KvType values>
void launch_tensor_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream);

}  // namespace leq::LEQ_GPU
