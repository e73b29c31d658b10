// One token times a weight of 8, 4, 3 or 2 bits by dp4a, with sums over whole rows or over groups
// of 32 or 64 columns (groups of 128: int_gemv_groups.cuh, int_gemv.cu). Each warp has some
// rows, whose units (chunks of columns) its lanes process in turn (docs/cuda-kernels.md).
#pragma once

#include "cuda/intrinsics/reduce.cuh"
#include "cuda/kernels/matmul/matmul_finish.cuh"
#include "cuda/kernels/matmul/packed_codes.cuh"
#include "cuda/kernels/matmul/row_tiles.cuh"
#include "cuda/kernels/rows/output_codes.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kGemvWarps = 8;
template <int bits>
inline constexpr int kGemvRows =
    bits == 8 || bits == 3 || bits == kTableBits ? 2 : 4;  // rows of a warp; they share the inputs
template <int bits>
inline constexpr int kGemvBlockRows = kGemvRows<bits>* kGemvWarps;

// The rows of one warp in two halves: neighbouring rows, or if gated rows of gate and the same
// rows of up. All of these have codes and scales, because weights are padded to 64 rows.
template <int bits>
struct GemvRows {
  static constexpr int kRows = kGemvRows<bits>, kHalf = kRows / 2;
  int segment[2];
  int first[2];
  std::int64_t column;  // output column of row first[0]

  __device__ __forceinline__ explicit GemvRows(const IntMatmul& a) {
    const RowTile tile(a, static_cast<int>(blockIdx.x), kGemvBlockRows<bits>);
    const int before = static_cast<int>(threadIdx.x / 32) * (tile.paired ? kHalf : kRows);
    segment[0] = tile.segment;
    segment[1] = tile.segment + (tile.paired ? 1 : 0);
    first[0] = tile.first + before;
    first[1] = tile.paired ? first[0] : first[0] + kHalf;
    column = tile.column + before;
  }

  __device__ __forceinline__ int row(int r) const {
    return (r < kHalf ? first[0] : first[1]) + r % kHalf;
  }
  __device__ __forceinline__ const CodeSegment& of(const IntMatmul& a, int r) const {
    return a.segments[r < kHalf ? segment[0] : segment[1]];
  }
};

// Totals over all lanes of `count` numbers (a power of two, at most 32); lane l returns the total
// of number l % count. Lanes exchange halves, so about `count` shuffles suffice.
template <int count, class T>
__device__ __forceinline__ T scattered_totals(const T (&values)[count]) {
  if constexpr (count == 1) {
    return values[0];
  } else {
    constexpr int kHalf = count / 2;
    const bool upper = (threadIdx.x & kHalf) != 0;
    T sums[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const T keep = upper ? values[i + kHalf] : values[i];
      const T give = upper ? values[i] : values[i + kHalf];
      sums[i] = keep + __shfl_xor_sync(kEveryLane, give, kHalf);
    }
    return scattered_totals(sums);
  }
}
template <int count, class T>
__device__ __forceinline__ T warp_totals(const T (&values)[count]) {
  T total = scattered_totals(values);
#pragma unroll
  for (int step = count; step < 32; step *= 2) {
    total += __shfl_xor_sync(kEveryLane, total, step);
  }
  return total;
}

// The int32 sums of a warp's rows.
template <int bits>
struct GemvTile {
  static constexpr int kRows = kGemvRows<bits>;
  int sums[kRows];

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] = 0;
  }

  // Adds the products of `runs` runs of 16 columns of a unit, from run `first` on. Sums are
  // multiples of 2^kDotShift.
  template <int runs>
  __device__ __forceinline__ void multiply(const Unit<bits> (&units)[kRows], int first,
                                           const std::int8_t* inputs, const Decoder<bits>& flip) {
#pragma unroll
    for (int run = first; run < first + runs; ++run) {
      const uint4 x = *reinterpret_cast<const uint4*>(inputs + run * 16);
      const std::uint32_t quads[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          sums[r] = ptx::dp4a(units[r].quad(run, word, flip), quads[word], sums[r]);
        }
      }
    }
  }
};

// A queue of a warp's groups, which are added in ascending order: for each group the sum of its
// code products, and the factor of that sum.
inline constexpr int kWaitingGroups = 64;
template <int bits>
struct WaitingGroups {
  int sums[kWaitingGroups][kGemvRows<bits>];
  float scales[kWaitingGroups][kGemvRows<bits>];
};

// Stores the sums of the groups that the warp has just processed. Lanes that share a group add
// their sums. `column` is the first column of the lane's group. Inactive lanes store nothing.
template <int bits>
__device__ __forceinline__ void keep_groups(const IntMatmul& a, const Grouping& grouping,
                                            const GemvRows<bits>& rows, GemvTile<bits>& tile,
                                            int column, bool active, WaitingGroups<bits>& waiting) {
  const int lanes = grouping.group / Packing<bits>::kColumns;  // 0: a lane has more than one group
  for (int step = lanes / 2; step > 0; step /= 2) {
#pragma unroll
    for (int r = 0; r < tile.kRows; ++r) {
      tile.sums[r] += __shfl_xor_sync(kEveryLane, tile.sums[r], step);
    }
  }
  if (!active || (column & (grouping.group - 1)) != 0) return;
  const int group = column >> group_shift(grouping.group), slot = group % kWaitingGroups;
  RowGroup row[kGemvRows<bits>];
#pragma unroll
  for (int r = 0; r < kGemvRows<bits>; ++r) {
    row[r] = row_group(rows.of(a, r).weight, grouping, rows.row(r), column);
  }
  const int place = column >> group_shift(grouping.token_group);
  const float scale = a.x.group > 0 ? a.x.scales[place] : 1.0f;
  const int sum = a.x.sums != nullptr ? a.x.sums[group] : 0;
#pragma unroll
  for (int r = 0; r < kGemvRows<bits>; ++r) {
    const int zero = row[r].zero - Packing<bits>::kDotMiddle;
    waiting.sums[slot][r] = (tile.sums[r] >> Packing<bits>::kDotShift) - zero * sum;
    waiting.scales[slot][r] = row[r].scale * scale;
  }
}

// The output that a lane finishes: lane l has row l % kRows of the warp's rows.
template <int bits>
struct GemvItem {
  static constexpr int kRows = kGemvRows<bits>;
  int item, row;
  bool upper;  // in the second half of the rows
  bool exists;
  std::int64_t column;
  const CodeSegment& segment;

  __device__ __forceinline__ GemvItem(const IntMatmul& a, const GemvRows<bits>& rows)
      : item(static_cast<int>(threadIdx.x) % kRows),
        row(rows.row(item)),
        upper(item >= kRows / 2),
        column(rows.column + item),
        segment(rows.of(a, item)) {
    exists = threadIdx.x % 32 < kRows && row < segment.rows;
  }
};

// f = fma(float(sum), scale, f) over the queued groups [first, last), in ascending order.
template <int bits>
__device__ __forceinline__ float add_groups(const GemvItem<bits>& item, int first, int last,
                                            const WaitingGroups<bits>& waiting, float f) {
  __syncwarp();
  for (int group = first; group < last; ++group) {
    const int slot = group % kWaitingGroups, sum = waiting.sums[slot][item.item];
    f = fmaf(static_cast<float>(sum), waiting.scales[slot][item.item], f);
  }
  __syncwarp();
  return f;
}

// Multiplies a lane's unit group by group; the smallest group has 32 columns, of codes with a table
// 16.
template <int bits>
__device__ __forceinline__ void multiply_groups(const IntMatmul& a, const Grouping& grouping,
                                                const GemvRows<bits>& rows, GemvTile<bits>& tile,
                                                const Unit<bits> (&loaded)[kGemvRows<bits>],
                                                const std::int8_t* inputs,
                                                const Decoder<bits>& flip, int column, bool active,
                                                WaitingGroups<bits>& waiting) {
  using Layout = Packing<bits>;
  constexpr int kRuns = Layout::kRuns < 2 || bits == kTableBits ? 1 : 2;
  tile.start();
#pragma unroll
  for (int run = 0; run < Layout::kRuns; run += kRuns) {
    tile.template multiply<kRuns>(loaded, run, inputs + column, flip);
    const int end = (run + kRuns) * 16;
    if (end < Layout::kColumns && (end & (grouping.group - 1)) != 0) continue;
    const int begin = max(0, end - grouping.group);
    keep_groups(a, grouping, rows, tile, column + begin, active, waiting);
    tile.start();
  }
}

// Processes all columns of a warp's rows. Without groups, each lane's part of the sums remains in
// the tile. With groups, returns the sum over the groups of the lane's output.
template <int bits, bool grouped>
__device__ __forceinline__ float multiply_units(const IntMatmul& a, const Grouping& grouping,
                                                const GemvRows<bits>& rows,
                                                const GemvItem<bits>& item, GemvTile<bits>& tile,
                                                WaitingGroups<bits>* waiting) {
  using Layout = Packing<bits>;
  [[maybe_unused]] constexpr int kUnrolled = grouped ? 1 : 2;
  const int lane = static_cast<int>(threadIdx.x % 32);
  Decoder<bits> flip = {};  // other codes are multiplied as unsigned numbers
  if constexpr (bits == 8 || bits == kTableBits) flip = signed_flip<bits>(a);
  const bool exists = rows.row(0) < rows.of(a, 0).rows;
  const int units = exists ? grouping.columns / Layout::kColumns : 0;
  const std::int8_t* const inputs = a.x.codes;
  int added = 0;  // number of groups added
  float f = 0;
#pragma unroll kUnrolled
  for (int base = 0; base < units; base += 32) {
    const bool active = base + lane < units;
    if (!grouped && !active) break;
    const int index = min(base + lane, units - 1), column = index * Layout::kColumns;
    Unit<bits> loaded[kGemvRows<bits>];
#pragma unroll
    for (int r = 0; r < kGemvRows<bits>; ++r) {
      loaded[r] = load_unit<bits>(rows.of(a, r).weight.codes +
                                  unit_at<bits>(rows.row(r), grouping.columns, index));
    }
    if constexpr (!grouped) {
      tile.template multiply<Layout::kRuns>(loaded, 0, inputs + column, flip);
    } else {
      multiply_groups(a, grouping, rows, tile, loaded, inputs, flip, column, active, *waiting);
      const int shift = group_shift(grouping.group);
      const int multiplied = min(base + 32, units) * Layout::kColumns >> shift;
      const int next = min(32 * Layout::kColumns, grouping.columns) >> shift;
      if (multiplied + next - added <= kWaitingGroups && base + 32 < units) continue;
      f = add_groups<bits>(item, added, multiplied, *waiting, f);
      added = multiplied;
    }
  }
  return f;
}

// Prefetches a lane's first unit of each row while the preceding kernel is still running.
template <int bits>
__device__ __forceinline__ void prefetch_rows(const IntMatmul& a, const Grouping& grouping,
                                              const GemvRows<bits>& rows) {
  const int units = grouping.columns / Packing<bits>::kColumns;
  const int index = min(static_cast<int>(threadIdx.x % 32), units - 1);
  if (rows.row(0) >= rows.of(a, 0).rows) return;
#pragma unroll
  for (int r = 0; r < kGemvRows<bits>; ++r) {
    ptx::prefetch(rows.of(a, r).weight.codes + unit_at<bits>(rows.row(r), grouping.columns, index));
  }
}

// `grouped`: the weights or the token have a scale per group. Groups are added in ascending order,
// as in all kernels. For a.tokens == 1.
template <int bits, bool grouped>
__device__ __forceinline__ void gemv_block(const IntMatmul& a) {
  WaitingGroups<bits>* waiting = nullptr;
  if constexpr (grouped) {
    LEQ_DYNAMIC_SHARED(WaitingGroups<bits>, groups);
    waiting = groups + threadIdx.x / 32;
  }
  const Grouping grouping(a);
  const GemvRows<bits> rows(a);
  prefetch_rows<bits>(a, grouping, rows);
  ptx::wait_for_predecessor();
  const GemvItem<bits> item(a, rows);
  GemvTile<bits> tile;
  tile.start();
  float sum = multiply_units<bits, grouped>(a, grouping, rows, item, tile, waiting);
  ptx::let_successor_start();
  if constexpr (!grouped) {
    int total = warp_totals(tile.sums);
    if (item.exists && a.x.sums != nullptr) {
      total -= row_group(item.segment.weight, grouping, item.row, 0).zero * a.x.sums[0];
    }
    sum = static_cast<float>(total);
  }
  const bool paired = is_gated(a.finish);
  const float y = item.exists ? finished_sum(a, item.segment, item.row, 0, sum) : 0.0f;
  const float up = __shfl_xor_sync(kEveryLane, y, item.kRows / 2);
  if (item.exists && !(paired && item.upper)) {
    finish(a.finish, a.out, 0, item.column, y, up);
  }
  constexpr int kColumns = kGemvBlockRows<bits>;  // output columns of a block
  const std::int64_t block = blockIdx.x, columns = a.segments[0].rows;
  if (paired) {
    finish_codes<kColumns / 2>(a.codes, a.out, 1, columns, block * (kColumns / 2));
  } else {
    finish_codes<kColumns>(a.codes, a.out, 1, columns, block * kColumns);
  }
}

template <int bits, bool grouped>
__global__ void __launch_bounds__(kGemvWarps * 32, 2)
    int_gemv(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(kGemvWarps * 32);
  gemv_block<bits, grouped>(a);
}

}  // namespace leq::LEQ_GPU
