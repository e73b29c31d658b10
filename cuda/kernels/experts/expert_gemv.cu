// The linears of experts for few rows: int_gemv for each row, with the weights of the row's expert.
// One launch covers all rows.
#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/matmul/int_gemv.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kMostRows = 32768;  // in one launch

struct ExpertRow {
  static constexpr bool kKnownEarly = false;  // the router selects the weights
  const CodeSegment* segments;
  std::int64_t in, out;

  __device__ __forceinline__ explicit ExpertRow(const ExpertMatmul& a)
      : out(a.first_row + blockIdx.y) {
    const auto row = static_cast<unsigned>(out), active = static_cast<unsigned>(a.choice.active);
    const std::int64_t token = row / active;
    const float* const chosen = a.choice.rows + token * a.choice.stride;
    const auto* const ids = reinterpret_cast<const std::int32_t*>(chosen) + row % active;
    segments = a.segments + std::int64_t{*ids} * a.matmul.segment_count;
    if (a.in_groups) out = ids[2 * active];
    in = a.has_row_each || a.in_groups ? out : token;
  }
  __device__ __forceinline__ const CodeSegment& segment(const IntMatmul&, int i) const {
    return segments[i];
  }
  __device__ __forceinline__ std::int64_t input() const { return in; }
  __device__ __forceinline__ std::int64_t output() const { return out; }
};

template <int bits, bool grouped>
__global__ void __launch_bounds__(kGemvWarps * 32, 2)
    expert_gemv(const LEQ_GRID_CONSTANT ExpertMatmul a) {
  LEQ_BOUNDS(kGemvWarps * 32);
  ptx::wait_for_predecessor();
  gemv_block<bits, grouped>(a.matmul, ExpertRow(a));
}

template <int bits>
void launch(const ExpertMatmul& a, rt::Stream& stream) {
  const IntMatmul& matmul = a.matmul;
  const bool paired = is_gated(matmul.finish);
  const bool grouped = matmul.segments[0].weight.group > 0 || matmul.x.group > 0;
  const int warps = gemv_warps<bits>(matmul.segments[0].rows, paired);
  auto* kernel = expert_gemv<bits, true>;
  // Codes of fewer than 8 bits always have groups.
  if constexpr (bits == 8) {
    if (!grouped) kernel = expert_gemv<8, false>;
  }
  ExpertMatmul part = a;
  for (; part.first_row < a.rows; part.first_row += kMostRows) {
    const std::int64_t rows = std::min(a.rows - part.first_row, kMostRows);
    rt::run(stream,
            {"expert_gemv",
             dim3(static_cast<unsigned>(warps / kGemvWarps), static_cast<unsigned>(rows)),
             dim3(kGemvWarps * 32), grouped ? kGemvWarps * sizeof(WaitingGroups<bits>) : 0,
             rt::Start::early},
            kernel, part);
  }
}

}  // namespace

void launch_expert_matmul(const ExpertMatmul& a, rt::Stream& stream) {
  launch_by_bits(a.matmul.segments[0].weight.bits, [&]<int bits>() { launch<bits>(a, stream); });
}

}  // namespace leq::LEQ_GPU
