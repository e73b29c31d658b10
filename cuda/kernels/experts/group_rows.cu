// Groups the rows of a step by expert: computes the index of each row, and copies codes there.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/reduce.cuh"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/experts/experts.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kGroupThreads = 1024, kMoveThreads = 128;

// Returns the router's entry for row r.
__device__ __forceinline__ std::int32_t* chosen(const ExpertChoice& choice, std::int64_t row) {
  const auto r = static_cast<unsigned>(row), active = static_cast<unsigned>(choice.active);
  return reinterpret_cast<std::int32_t*>(choice.rows + r / active * choice.stride) + r % active;
}

// Runs as one block: counts the rows of each expert, sums the counts, and indexes each row.
__global__ void __launch_bounds__(kGroupThreads)
    group_rows(const LEQ_GRID_CONSTANT GroupRowsArguments a) {
  LEQ_BOUNDS(kGroupThreads);
  LEQ_SHARED(int[kMostExperts], counts);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const auto thread = static_cast<int>(threadIdx.x);
  counts[thread] = 0;
  __syncthreads();
  for (std::int64_t row = thread; row < a.rows; row += kGroupThreads) {
    atomicAdd(&counts[*chosen(a.choice, row)], 1);
  }
  __syncthreads();
  if (thread == 0) {
    int rows = 0, tiles = 0;
    for (int e = 0; e <= a.groups.experts; ++e) {
      a.groups.first[e] = rows;
      a.groups.tiles[e] = tiles;
      if (e == a.groups.experts) break;
      const int count = counts[e];
      counts[e] = rows;
      rows += count;
      tiles += (count + kExpertTile - 1) / kExpertTile;
    }
  }
  __syncthreads();
  // One warp per expert keeps rows in order, so that ranks that share a model have equal indices.
  const int lane = thread % 32;
  for (int e = thread / 32; e < a.groups.experts; e += kGroupThreads / 32) {
    int place = counts[e];
    for (std::int64_t base = 0; base < a.rows; base += 32) {
      std::int32_t* const id = base + lane < a.rows ? chosen(a.choice, base + lane) : nullptr;
      const bool own = id != nullptr && *id == e;
      const unsigned all = __ballot_sync(kEveryLane, own);
      if (own) id[2 * a.choice.active] = place + __popc(all & ((1u << lane) - 1u));
      place += __popc(all);
    }
  }
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
  rt::run(stream, {"group_rows", dim3(1), dim3(kGroupThreads), 0, rt::Start::early}, group_rows, a);
}

void launch_group_inputs(const GroupInputsArguments& a, rt::Stream& stream) {
  rt::run(stream,
          {"group_inputs", dim3(static_cast<unsigned>(a.rows)), dim3(kMoveThreads), 0,
           rt::Start::early},
          group_inputs, a);
}

}  // namespace leq::LEQ_GPU
