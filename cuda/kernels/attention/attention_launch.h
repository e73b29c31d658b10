// How attention is launched: by one of two kinds of kernels, exact ones in f32
// (attention_exact*.cu) and those on tensor cores (one file for each type), chosen in attention.cu.
#pragma once

#include <algorithm>

#include "cuda/kernels/launch.h"
#include "cuda/layout/attention_scratch.h"

namespace leq::LEQ_GPU {

// Whose rows a launch has. A batch of generation beside a prompt takes two: a shape for each.
enum class AttentionRuns : std::uint8_t { all, single, longer };

constexpr bool has_run(AttentionRuns which, int rows) {
  return which == AttentionRuns::all || (which == AttentionRuns::single) == (rows == 1);
}

// How the work is cut.
struct AttentionPlan {
  AttentionRuns which = AttentionRuns::all;
  int block_rows = 1;   // rows of one run in a block
  int block_heads = 1;  // heads of a kv head in a block
  int head_blocks = 1;  // blocks that the heads of a kv head make
  bool split = false;   // a block for each span; else it walks all of them
  int spans = 1;        // of the longest row, blocks in z with split
  int first_block = 0;  // split: of the launch, among all blocks of rows
  // split: records lie in the order of the launch's blocks, else of the batch's rows
  bool placed_by_block = false;
  int tile_positions = 64;  // exact: of keys or values in shared memory, 64, 32 or 16
};

// Rows of at most `rows` whose records lie in scratch at once.
inline std::int64_t rows_at_once(const AttentionArguments& a, const AttentionPlan& plan,
                                 std::int64_t rows) {
  const std::int64_t capacity = a.most_records / (std::int64_t{a.heads.heads} * plan.spans);
  return std::min(rows, std::max<std::int64_t>(1, capacity));
}

// launch(plan, blocks) for all `blocks` of rows: at once, or, where the records of all `rows` are
// too many for scratch, some after others. No number depends on it.
template <class Launch>
void launch_in_parts(const AttentionArguments& a, AttentionPlan plan, std::int64_t rows,
                     std::int64_t blocks, Launch launch) {
  const std::int64_t at_once = rows_at_once(a, plan, rows);
  const bool in_parts = plan.split && rows > at_once;
  // Blocks that are not full leave gaps, so that all at once might need more than their rows do.
  plan.placed_by_block = in_parts || plan.block_rows == 1;
  const std::int64_t part = in_parts ? at_once / plan.block_rows : blocks;
  for (std::int64_t first = 0; first < blocks; first += part) {
    plan.first_block = static_cast<int>(first);
    launch(plan, static_cast<unsigned>(std::min(part, blocks - first)));
  }
}

void launch_exact_attention(const AttentionArguments& a, rt::Stream& stream);
// Where keys or values, or both, are packed.
void launch_exact_packed(const AttentionArguments& a, const AttentionPlan& plan,
                         rt::Stream& stream);

// Both of one packed type, head_dim a multiple of 16 up to kPackedDims; `plan` and scratch as
// below.
inline constexpr int kPackedDims = 128;
template <int bits, int group>
void launch_packed_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream);

// Of every block on tensor cores: so many heads of a kv head are one block's.
inline constexpr int kFewestQueries = 16;

// head_dim a multiple of 16 up to 256; both f16 or both int8. `plan` has split and spans. With
// split blocks leave records (o, m, l) of spans in scratch, [T][H][spans][d + 2], which the last of
// them joins; T are the rows of the launch, a place for each that a block could have.
template <KvType keys, KvType values>
void launch_tensor_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream);

}  // namespace leq::LEQ_GPU
