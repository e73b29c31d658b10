// Groups the rows of a step by expert: computes the index of each row, and copies codes there.
#include <algorithm>

#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/reduce.cuh"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/experts/experts.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kGroupThreads = 1024, kMoveThreads = 128;

// The rows of a step in parts of neighbouring rows, one for each warp.
struct RowParts {
  int parts, rows_of_part;

  RowParts(std::int64_t rows, int experts) {
    constexpr int kMaxCounts = 16384;  // 64 KB of shared memory
    const int most = std::min(kGroupThreads / 32, kMaxCounts / experts);
    rows_of_part = static_cast<int>(round_up_to(div_up(rows, most), 32));
    parts = static_cast<int>(div_up(rows, rows_of_part));
  }
};

// Returns the router's entry for row r.
__device__ __forceinline__ std::int32_t* chosen(const ExpertChoice& choice, std::int64_t row) {
  const auto r = static_cast<unsigned>(row), active = static_cast<unsigned>(choice.active);
  return reinterpret_cast<std::int32_t*>(choice.rows + r / active * choice.stride) + r % active;
}

// Calls visit(entry, expert) for the rows first ... last - 1, 32 at a time in ascending order, for
// each lane one; the expert of lanes without a row is -1. Four entries are loaded at once.
template <class Visit>
__device__ __forceinline__ void each_row(const ExpertChoice& choice, int first, int last,
                                         Visit visit) {
  constexpr int kLoads = 4;
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
  for (int base = first; base < last; base += kLoads * 32) {
    std::int32_t* entries[kLoads];
    int experts[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = base + 32 * i + lane;
      entries[i] = row < last ? chosen(choice, row) : nullptr;
      experts[i] = entries[i] != nullptr ? *entries[i] : -1;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) visit(entries[i], experts[i]);
  }
}

// Returns the sum of the values of all threads of the block before this one.
__device__ __forceinline__ int sum_before(int value) {
  LEQ_SHARED(int[32], totals);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  int sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kEveryLane, sum, static_cast<unsigned>(step));
    if (lane >= step) sum += other;
  }
  if (lane == 31) totals[warp] = sum;
  __syncthreads();
  const int before = warp_sum(lane < warp ? totals[lane] : 0);
  __syncthreads();
  return before + sum - value;
}

// Runs as one block and sorts by counting: each warp counts its part's rows of each expert; from
// the counts, thread e sums where expert e's rows of each part begin; each warp indexes its rows.
// Rows keep their order, so that ranks that share a model have equal indices.
__global__ void __launch_bounds__(kGroupThreads)
    group_rows(const LEQ_GRID_CONSTANT GroupRowsArguments a, const RowParts of) {
  LEQ_BOUNDS(kGroupThreads);
  LEQ_DYNAMIC_SHARED(int, counts);  // [parts][E]
  const int thread = static_cast<int>(threadIdx.x), experts = a.groups.experts;
  for (int i = thread; i < of.parts * experts; i += kGroupThreads) counts[i] = 0;
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  __syncthreads();
  int* const own = counts + thread / 32 * experts;
  const int first_row = thread / 32 * of.rows_of_part;
  const int last_row = min(first_row + of.rows_of_part, static_cast<int>(a.rows));
  each_row(a.choice, first_row, last_row, [&](const std::int32_t*, int expert) {
    if (expert >= 0) atomicAdd(&own[expert], 1);
  });
  __syncthreads();
  int rows = 0;
  for (int part = 0; part < of.parts && thread < experts; ++part) {
    rows += counts[part * experts + thread];
  }
  const int tiles = (rows + a.groups.tile_rows - 1) / a.groups.tile_rows;
  int place = sum_before(rows);
  const int tile = sum_before(tiles);
  if (thread == 0) a.groups.first[0] = a.groups.tiles[0] = 0;
  if (thread < experts) {
    a.groups.first[thread + 1] = place + rows;
    a.groups.tiles[thread + 1] = tile + tiles;
  }
  for (int part = 0; part < of.parts && thread < experts; ++part) {
    int& count = counts[part * experts + thread];
    place += count;
    count = place - count;
  }
  __syncthreads();
  const unsigned lower_lanes = (1u << thread % 32) - 1u;
  each_row(a.choice, first_row, last_row, [&](std::int32_t* entry, int expert) {
    const unsigned same = __match_any_sync(kEveryLane, expert);
    const int before = __popc(same & lower_lanes);
    if (expert >= 0) entry[2 * a.choice.active] = own[expert] + before;
    __syncwarp();
    if (expert >= 0 && before == 0) own[expert] += __popc(same);
    __syncwarp();
  });
}

template <class T>
__device__ __forceinline__ void copy_numbers(const T* from, T* to, std::int64_t count) {
#pragma unroll 1
  for (std::int64_t i = threadIdx.x; i < count; i += kMoveThreads) to[i] = from[i];
}

// One block per row. A row of codes is a multiple of 16 bytes.
__global__ void __launch_bounds__(kMoveThreads)
    group_inputs(const LEQ_GRID_CONSTANT GroupInputsArguments a) {
  LEQ_BOUNDS(kMoveThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x / static_cast<unsigned>(a.choice.active);
  const std::int64_t place = chosen(a.choice, blockIdx.x)[2 * a.choice.active];
  copy_numbers(reinterpret_cast<const uint4*>(a.x.codes + token * a.x.code_stride),
               reinterpret_cast<uint4*>(a.grouped.codes + place * a.grouped.code_stride),
               a.x.code_stride / 16);
  copy_numbers(a.x.scales + token * a.x.scale_stride,
               a.grouped.scales + place * a.grouped.scale_stride, a.x.scale_stride);
  if (a.x.sums == nullptr) return;
  copy_numbers(a.x.sums + token * a.x.sum_stride, a.grouped.sums + place * a.grouped.sum_stride,
               a.x.sum_stride);
}

}  // namespace

void launch_group_rows(const GroupRowsArguments& a, rt::Stream& stream) {
  const RowParts of(a.rows, a.groups.experts);
  rt::run(stream,
          {"group_rows", 1, kGroupThreads,
           static_cast<std::size_t>(of.parts) * static_cast<std::size_t>(a.groups.experts) *
               sizeof(int),
           rt::Start::early},
          group_rows, a, of);
}

void launch_group_inputs(const GroupInputsArguments& a, rt::Stream& stream) {
  rt::run(stream, {"group_inputs", rt::grid(a.rows), kMoveThreads, 0, rt::Start::early},
          group_inputs, a);
}

}  // namespace leq::LEQ_GPU
