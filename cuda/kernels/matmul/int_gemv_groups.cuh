// One token times a weight whose sums are over groups of 128 columns, by dp4a. A block has 16 rows
// of the weight. Its warps take pairs of groups in turn and process all 16 rows at once; a few
// lanes (a team) share a row's group. Sums are queued in shared memory, where one thread per output
// adds them in ascending order, bit-identical to every other kernel (docs/cuda-kernels.md).
#pragma once

#include <algorithm>

#include "cuda/intrinsics/reduce.cuh"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/matmul_finish.cuh"
#include "cuda/kernels/matmul/packed_codes.cuh"
#include "cuda/kernels/matmul/row_tiles.cuh"
#include "cuda/kernels/rows/output_codes.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kGroupColumns = 128;
inline constexpr int kGroupWarps = 8;
inline constexpr int kMaxGroups = 768;  // in the queue of 96 KB
inline constexpr int kGroupRows = 16;   // rows of a block

template <int bits>
struct GroupShape {
  static constexpr int kLanes = kGroupColumns / Packing<bits>::kColumns;  // lanes sharing a group
  // The number of neighbouring groups that a warp processes at once. Two, so that each lane
  // finishes one sum; at 8 bits one, as with two there are registers for half as many warps. A lane
  // works on both groups, or on one if it has all of a group.
  static constexpr int kGroups = bits == 8 ? 1 : 2, kLaneGroups = kLanes == 1 ? 1 : kGroups;
  static constexpr int kTeamLanes = kLanes * kGroups / kLaneGroups;
  static constexpr int kTeams = 32 / kTeamLanes;
  static constexpr int kRows = kGroupRows / kTeams;    // rows of a team
  static constexpr int kItems = kLaneGroups * kRows;   // sums of the lanes that share a group
  static constexpr int kStep = kGroupWarps * kGroups;  // groups that all warps process at once
  static constexpr int kBlocks = bits == 8 ? 4 : 2;    // of a multiprocessor
  // Inputs are loaded one step ahead, unless there are enough warps to hide the latency of L2.
  static constexpr bool kInputsAhead = kBlocks == 2;
  static_assert(kRows * kTeams == kGroupRows && kLanes % kItems == 0);
};

// A queued sum of a group's products, and its factor. The queue is [groups][16 rows].
struct alignas(8) WaitingSum {
  float sum, scale;
};

// For one token a row needs at least two groups, as a warp of its kernel processes two at once, and
// at most as many as there is shared memory for the sums of.
inline bool has_groups_of_128(const IntMatmul& a, std::int64_t of_tokens) {
  const int weights = a.segments[0].weight.group, tokens = a.x.group;
  return (weights == 128 || weights == 0) && (tokens == 128 || tokens == 0) &&
         weights + tokens > 0 &&
         (of_tokens > 1 || (a.columns > kGroupColumns && a.columns <= kMaxGroups * kGroupColumns));
}

// The 16 rows of a block.
struct BlockRows : RowTile {
  __device__ __forceinline__ explicit BlockRows(const IntMatmul& a)
      : RowTile(a, static_cast<int>(blockIdx.x), kGroupRows) {}
  __device__ __forceinline__ int row(int i) const {
    return first + (paired ? i % (kGroupRows / 2) : i);
  }
  __device__ __forceinline__ const CodeSegment& of(const IntMatmul& a, int i) const {
    return a.segments[paired && i >= kGroupRows / 2 ? 1 : segment];
  }
};

// Totals of `count` numbers over as many neighbouring lanes. Lanes exchange halves, after which
// values[0] of each lane is the total of the number at the lane's index.
template <int count, int size>
__device__ __forceinline__ void team_totals(int (&values)[size]) {
  if constexpr (count > 1) {
    constexpr int kHalf = count / 2;
    const bool upper = (threadIdx.x & kHalf) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const int keep = upper ? values[i + kHalf] : values[i];
      const int give = upper ? values[i] : values[i + kHalf];
      values[i] = keep + __shfl_xor_sync(kEveryLane, give, kHalf);
    }
    team_totals<kHalf>(values);
  }
}

// A lane's data of a step's groups, loaded one step ahead: codes and inputs, and the scales, zero
// point and sum of inputs for the sum that the lane will finish.
template <int bits>
struct GroupStep {
  using Shape = GroupShape<bits>;
  // For other numbers of bits, there are not enough registers for inputs in addition to codes.
  static constexpr bool kHoldsInputs = bits == 4;
  static constexpr int kInputs = kHoldsInputs ? Packing<bits>::kRuns : 1;
  int group;  // first group of the step
  Unit<bits> units[Shape::kLaneGroups][Shape::kRows];
  uint4 inputs[Shape::kLaneGroups][kInputs];
  std::uint16_t scale;
  int zero;
  float token_scale;
  int token_sum;
};

// One lane's loop over the groups of its warp.
template <int bits>
struct GroupLoop {
  using Shape = GroupShape<bits>;
  using Layout = Packing<bits>;
  using Step = GroupStep<bits>;
  static constexpr int kGroupBytes = kGroupColumns * bits / 8;

  const IntMatmul& a;
  const BlockRows& rows;
  int groups;      // groups of a row, at least kGroups
  int ahead, row;  // the lane's own sum: its group in the step, and its row of 16
  // The codes of the team's first row. The team's other rows are contiguous, because a team never
  // spans the end of a weight or the change from gate to up.
  const std::uint8_t* codes;
  int inputs;                   // the lane's first input
  const std::uint16_t* scales;  // valid if has_scales()
  const std::uint8_t* zeros;    // valid if has_zeros()
  float scale_mul;
  WaitingSum* place;  // the lane's entry in the queue for group 0

  // Codes below 8 bits always have groups and zero points, which require sums of the inputs.
  __device__ __forceinline__ bool has_scales() const {
    return bits < 8 || a.segments[0].weight.group > 0;
  }
  __device__ __forceinline__ bool has_zeros() const {
    return a.segments[0].weight.zeros != nullptr;
  }
  __device__ __forceinline__ bool has_sums() const { return bits < 8 || a.x.sums != nullptr; }

  __device__ __forceinline__ GroupLoop(const IntMatmul& arguments, const BlockRows& of_block,
                                       WaitingSum* waiting)
      : a(arguments),
        rows(of_block),
        groups(static_cast<int>(round_up_to(arguments.columns, kGroupColumns)) / kGroupColumns) {
    const int lane = static_cast<int>(threadIdx.x % 32),
              first = lane / Shape::kTeamLanes * Shape::kRows;
    const int part = lane % Shape::kTeamLanes;  // the lane's part of the team's columns
    const CodeWeight& weight = rows.of(a, first).weight;
    const std::int64_t at = std::int64_t{rows.row(first)} * groups;
    codes = ptx::opaque(weight.codes + at * kGroupBytes + part * Layout::kBytes);
    inputs = ptx::opaque(static_cast<unsigned>(part * Layout::kColumns));
    ahead = part / Shape::kRows % Shape::kGroups;
    row = first + part % Shape::kRows;
    const CodeWeight& owned = rows.of(a, row).weight;
    const std::int64_t of_row = rows.row(row), scale_at = of_row * groups + ahead;
    scales = ptx::opaque(owned.group_scales + scale_at);
    zeros = ptx::opaque(owned.zeros + (has_scales() ? scale_at : of_row));
    scale_mul = has_scales() ? owned.scale_mul : 1.0f;
    place = ptx::opaque_shared(waiting + ahead * kGroupRows + row);
  }

  // Loads a step that begins at `group`, or earlier if the row ends first; groups that are loaded
  // twice are only counted once. May precede the wait, because no kernel writes weights.
  __device__ __forceinline__ void load_weights(int group, Step& step) const {
    step.group = min(group, groups - Shape::kGroups);
    const std::uint8_t* row_codes = ptx::moved<kGroupBytes>(codes, step.group);
#pragma unroll
    for (int r = 0; r < Shape::kRows; ++r) {
#pragma unroll
      for (int j = 0; j < Shape::kLaneGroups; ++j) {
        step.units[j][r] = load_unit<bits>(row_codes + j * kGroupBytes);
      }
      row_codes += groups * kGroupBytes;
    }
    step.scale = 0x3c00;  // 1
    if (has_scales()) step.scale = *ptx::moved(scales, step.group);
  }
  __device__ __forceinline__ void load_tokens(Step& step) const {
    if constexpr (Step::kHoldsInputs) {
#pragma unroll
      for (int j = 0; j < Shape::kLaneGroups; ++j) {
#pragma unroll
        for (int run = 0; run < Layout::kRuns; ++run) {
          step.inputs[j][run] = input_at(step.group, j, run);
        }
      }
    }
    if constexpr (Shape::kInputsAhead) step.zero = zero_at(step.group);
    const int group = step.group + ahead;
    step.token_scale = a.x.group > 0 ? *ptx::moved(a.x.scales, group) : 1.0f;
    step.token_sum = has_sums() ? *ptx::moved(a.x.sums, group) : 0;
  }
  __device__ __forceinline__ int zero_at(int group) const {
    return has_zeros() ? *ptx::moved(zeros, has_scales() ? group : 0) : a.segments[0].weight.zero;
  }
  __device__ __forceinline__ uint4 input_at(int group, int j, int run) const {
    return *reinterpret_cast<const uint4*>(ptx::moved(a.x.codes, inputs + group * kGroupColumns) +
                                           j * kGroupColumns + run * 16);
  }

  // Codes of 4 and 2 bits are multiplied without a shift, at their position in the bytes. The
  // highest position is first; sums, which are multiples of its power of two, are shifted down
  // before the next position. Shifting a sum replaces shifting all words.
  static constexpr bool kInPlace = bits == 4 || bits == 2;

  template <bool is_unsigned>
  __device__ __forceinline__ void multiply(const Step& step, int (&sums)[Shape::kItems]) const {
#pragma unroll
    for (int i = 0; i < Shape::kItems; ++i) sums[i] = 0;
#pragma unroll
    for (int j = 0; j < Shape::kLaneGroups; ++j) {
#pragma unroll
      for (int i = 0; i < Layout::kRuns; ++i) {
        const int run = kInPlace ? Layout::kRuns - 1 - i : i;
        const uint4 x = Step::kHoldsInputs ? step.inputs[j][Step::kHoldsInputs ? run : 0]
                                           : input_at(step.group, j, run);
        const std::uint32_t quads[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int r = 0; r < Shape::kRows; ++r) {
          int& sum = sums[j * Shape::kRows + r];
          const Unit<bits>& unit = step.units[j][r];
          if (kInPlace && i > 0) sum >>= bits;
#pragma unroll
          for (int word = 0; word < 4; ++word) {
            if constexpr (kInPlace) {
              sum = ptx::dp4a_u8s8(unit.quad_in_place(run, word), quads[word], sum);
            } else {
              const std::uint32_t quad = unit.quad(run, word, 0);
              sum = is_unsigned ? ptx::dp4a_u8s8(quad, quads[word], sum)
                                : ptx::dp4a(quad, quads[word], sum);
            }
          }
        }
      }
    }
  }

  // Stores the lane's sum and its scale to the queue, for groups from `group` on.
  __device__ __forceinline__ void keep(const Step& step, int group,
                                       int (&sums)[Shape::kItems]) const {
    team_totals<Shape::kItems>(sums);
#pragma unroll
    for (int lanes = Shape::kItems; lanes < Shape::kLanes; lanes *= 2) {
      sums[0] += __shfl_xor_sync(kEveryLane, sums[0], lanes);
    }
    const float scale = ptx::f16_to_f32(step.scale) * scale_mul;
    const int of_group = step.group + ahead;
    if (of_group < group) return;  // counted in another step
    // With one more register in the loop of 8 bits, 10.0 would spill.
    const int zero = (Shape::kInputsAhead ? step.zero : zero_at(step.group)) - Layout::kDotMiddle;
    const int sum = (sums[0] >> Layout::kDotShift) - zero * step.token_sum;
    place[step.group * kGroupRows] = {static_cast<float>(sum), scale * step.token_scale};
  }
};

// Adds the queued sums; each of the first kGroupRows threads adds the sums of one output.
__device__ __forceinline__ float add_waiting(const WaitingSum* waiting, int count, float f) {
  if (threadIdx.x >= kGroupRows) return f;
#pragma unroll 4
  for (int slot = 0; slot < count; ++slot) {
    const WaitingSum next = waiting[slot * kGroupRows + static_cast<int>(threadIdx.x)];
    f = fmaf(next.sum, next.scale, f);
  }
  return f;
}

__device__ __forceinline__ void finish_groups(const IntMatmul& a, const BlockRows& rows, float f) {
  const int i = static_cast<int>(threadIdx.x) % kGroupRows, row = rows.row(i);
  const CodeSegment& segment = rows.of(a, i);
  const bool exists = threadIdx.x < kGroupRows && row < segment.rows;
  const float y = exists ? finished_sum(a, segment, row, 0, f) : 0.0f;
  const float up = __shfl_xor_sync(kEveryLane, y, kGroupRows / 2);
  if (!exists || (rows.paired && i >= kGroupRows / 2)) return;
  finish(a.finish, a.out, 0, rows.column + i, y, up);
}

// Computes the outputs of a block, for a.tokens == 1. prepare(rows) is called behind the main loop,
// and what it returns when the outputs are written.
template <int bits, class Prepare>
__device__ __forceinline__ void groups_block(const IntMatmul& a, Prepare prepare) {
  LEQ_DYNAMIC_SHARED(WaitingSum, waiting);
  using Shape = GroupShape<bits>;
  const BlockRows rows(a);
  GroupLoop<bits> loop(a, rows, waiting);
  GroupStep<bits> next;
  int group = static_cast<int>(threadIdx.x / 32) * Shape::kGroups;
  loop.load_weights(group, next);
  ptx::wait_for_predecessor();
  if constexpr (Shape::kInputsAhead) loop.load_tokens(next);
#pragma unroll Shape::kInputsAhead ? 2 : 1
  for (; group < loop.groups; group += Shape::kStep) {
    GroupStep<bits> step = next;
    loop.load_weights(group + Shape::kStep, next);
    loop.load_tokens(Shape::kInputsAhead ? next : step);
    int sums[Shape::kItems];
    if (bits == 8 && loop.has_zeros()) {
      loop.template multiply<bits == 8>(step, sums);
    } else {
      loop.template multiply<false>(step, sums);
    }
    loop.keep(step, group, sums);
  }
  ptx::let_successor_start();
  const auto then = prepare(rows);
  __syncthreads();
  const float f = add_waiting(waiting, loop.groups, 0);
  finish_groups(a, rows, f);
  if (rows.paired) {
    finish_codes<kGroupRows / 2>(a.codes, a.out, a.tokens, a.segments[0].rows, rows.column);
  } else {
    finish_codes<kGroupRows>(a.codes, a.out, a.tokens, a.segments[0].rows, rows.column);
  }
  then();
}
template <int bits>
__device__ __forceinline__ void groups_block(const IntMatmul& a) {
  groups_block<bits>(a, [](const BlockRows&) { return [] {}; });
}

// The launch of groups_block, with at least `bytes` of dynamic shared memory.
inline rt::Launch groups_launch(const char* kernel, const IntMatmul& a, std::size_t bytes = 0) {
  const auto sums = static_cast<std::size_t>(div_up(a.columns, kGroupColumns) * kGroupRows);
  return {kernel, rt::grid(row_tiles(a, kGroupRows)), kGroupWarps * 32,
          std::max(sums * sizeof(WaitingSum), bytes), rt::Start::early};
}

// For a.tokens == 1, with groups of 128 columns of the weights, the token, or both.
template <int bits>
__global__ void __launch_bounds__(kGroupWarps * 32, GroupShape<bits>::kBlocks)
    int_gemv_groups(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(kGroupWarps * 32);
  groups_block<bits>(a);
}

}  // namespace leq::LEQ_GPU
