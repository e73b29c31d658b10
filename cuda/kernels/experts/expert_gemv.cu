// The linears of experts for few rows: int_gemv for each row, with the weights of the row's expert.
// One launch covers all rows.
#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/matmul/int_gemv.cuh"
#include "cuda/kernels/matmul/int_gemv_groups.cuh"
#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/kernels/rows/add_experts.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kMaxRows = 32768;  // in one launch
static_assert(kGemvWarps == kGroupWarps);
using RowMemory = std::uint64_t[sizeof(IntMatmul) / sizeof(std::uint64_t)];

// The number of tickets of a row: one for 128 columns.
__host__ __device__ constexpr std::int64_t ticket_groups(const IntMatmul& a) {
  return div_up(a.segments[0].rows, 128);
}

// Returns the rows from `row` on.
__device__ __forceinline__ CodeRows row_of(CodeRows rows, std::int64_t row) {
  rows.codes += row * rows.code_stride;
  rows.scales += row * rows.scale_stride;
  if (rows.sums != nullptr) rows.sums += row * rows.sum_stride;
  return rows;
}

// Writes the matmul of row blockIdx.y, with the weights that the router chose, to shared memory.
__device__ __forceinline__ void find_row(const ExpertMatmul& a, IntMatmul& found) {
  const std::int64_t row = a.first_row + blockIdx.y;
  const auto r = static_cast<unsigned>(row), active = static_cast<unsigned>(a.choice.active);
  const std::int64_t token = r / active;
  const auto* const ids =
      reinterpret_cast<const std::int32_t*>(a.choice.rows + token * a.choice.stride) + r % active;
  const auto i = static_cast<int>(threadIdx.x);
  if (i < a.matmul.segment_count) {
    found.segments[i] = a.segments[std::int64_t{*ids} * a.matmul.segment_count + i];
  } else if (i == 32) {
    const std::int64_t out = a.in_groups ? ids[2 * active] : row;
    const std::int64_t in = a.has_row_each || a.in_groups ? out : token;
    found.segment_count = a.matmul.segment_count;
    found.tokens = 1;
    found.columns = a.matmul.columns;
    found.x = row_of(a.matmul.x, in);
    found.finish = a.matmul.finish;
    found.out = {a.matmul.out.values + out * a.matmul.out.stride, a.matmul.out.stride};
    found.codes = a.matmul.codes;
    Quantize& quantize = found.codes.quantize;
    if (quantize.out.codes != nullptr) {
      quantize.out = row_of(quantize.out, out);
      quantize.fault.first_row = static_cast<std::uint32_t>(out);
      found.codes.tickets += out * ticket_groups(a.matmul);
    }
  }
  __syncthreads();
}

template <int bits, bool grouped>
__global__ void __launch_bounds__(kGemvWarps * 32, 2)
    expert_gemv(const LEQ_GRID_CONSTANT ExpertMatmul a) {
  LEQ_BOUNDS(kGemvWarps * 32);
  LEQ_SHARED(RowMemory, memory);
  auto& row = *reinterpret_cast<IntMatmul*>(memory);
  ptx::wait_for_predecessor();
  find_row(a, row);
  gemv_block<bits, grouped>(row);
}

template <int bits>
__global__ void __launch_bounds__(kGroupWarps * 32, GroupShape<bits>::kBlocks)
    expert_gemv_groups(const LEQ_GRID_CONSTANT ExpertMatmul a) {
  LEQ_BOUNDS(kGroupWarps * 32);
  LEQ_SHARED(RowMemory, memory);
  auto& row = *reinterpret_cast<IntMatmul*>(memory);
  ptx::wait_for_predecessor();
  find_row(a, row);
  groups_block<bits>(row);
  if (a.add_tickets == nullptr) return;
  const auto active = static_cast<unsigned>(a.choice.active);
  const unsigned token = (static_cast<unsigned>(a.first_row) + blockIdx.y) / active;
  if (!is_last_block(a.add_tickets + token * gridDim.x + blockIdx.x, active)) return;
  const std::int64_t c = std::int64_t{blockIdx.x} * kGroupRows + threadIdx.x;
  if (threadIdx.x < kGroupRows && c < a.add.width) add_column(a.add, token, c);
}

template <int bits>
void launch(const ExpertMatmul& a, rt::Stream& stream) {
  const IntMatmul& matmul = a.matmul;
  const bool grouped = matmul.segments[0].weight.group > 0 || matmul.x.group > 0;
  const bool of_128 = has_groups_of_128(matmul, 1);
  std::int64_t blocks = row_tiles(matmul, kGemvBlockRows<bits>);
  std::size_t bytes = grouped ? kGemvWarps * sizeof(WaitingGroups<bits>) : 0;
  auto* kernel = expert_gemv<bits, true>;
  // Codes of fewer than 8 bits always have groups.
  if constexpr (bits == 8) {
    if (!grouped) kernel = expert_gemv<8, false>;
  }
  if constexpr (bits != kTableBits) {
    if (of_128) {
      kernel = expert_gemv_groups<bits>;
      blocks = row_tiles(matmul, kGroupRows);
      bytes = groups_launch("", matmul).shared_bytes;
    }
  }
  ExpertMatmul part = a;
  for (; part.first_row < a.rows; part.first_row += kMaxRows) {
    const std::int64_t rows = std::min(a.rows - part.first_row, kMaxRows);
    rt::run(stream,
            {of_128 ? "expert_gemv_groups" : "expert_gemv", rt::grid(blocks, rows), kGemvWarps * 32,
             bytes, rt::Start::early},
            kernel, part);
  }
}

}  // namespace

bool makes_codes(const ExpertMatmul& a) { return a.rows * ticket_groups(a.matmul) <= kTickets; }

bool adds(const ExpertMatmul& a) {
  const std::int64_t blocks = row_tiles(a.matmul, kGroupRows);
  return has_groups_of_128(a.matmul, 1) && !is_gated(a.matmul.finish) && !a.in_groups &&
         a.rows <= kMaxRows && a.rows / a.choice.active * blocks <= kTickets &&
         !rt::has_debug_option("no-join");
}

void launch_expert_matmul(const ExpertMatmul& a, rt::Stream& stream) {
  launch_by_codes(a.matmul.segments[0].weight, [&]<int bits>() { launch<bits>(a, stream); });
}

}  // namespace leq::LEQ_GPU
