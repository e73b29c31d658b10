// Online activation scales for steps of several rows, in three launches: the largest |x| of each
// row; codes, with a scale that each block computes redundantly; the update of the moving scale.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/online.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    online_absmax(const LEQ_GRID_CONSTANT OnlineArguments a) {
  LEQ_BOUNDS(kThreads);
  const unsigned largest = row_absmax(a.x.values + blockIdx.x * a.x.stride, a.width);
  if (threadIdx.x == 0) a.largest[blockIdx.x] = __uint_as_float(largest);
}

__global__ void __launch_bounds__(kThreads)
    online_codes(const LEQ_GRID_CONSTANT OnlineArguments a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t token = blockIdx.x;
  const float row_largest = a.largest[token];
  const unsigned largest = row_absmax(a.largest, a.tokens);
  if (largest >= 0x7f800000u) {
    const bool mine = magnitude_bits(row_largest) >= 0x7f800000u;
    if (mine && threadIdx.x == 0) report_row(a.quantize.fault, token);
    return;
  }
  const OnlineStep step = begin_online(a.quantize.online, __uint_as_float(largest));
  const int clipped = quantize_in_step(a.x.values + token * a.x.stride, token, a.width, a.quantize,
                                       step, row_largest);
  if (threadIdx.x == 0) a.clipped[token] = static_cast<unsigned>(clipped);
}

__global__ void __launch_bounds__(kThreads)
    online_advance(const LEQ_GRID_CONSTANT OnlineArguments a) {
  LEQ_BOUNDS(kThreads);
  if (!is_fault_free(a.quantize.fault)) return;
  const unsigned largest = row_absmax(a.largest, a.tokens);
  unsigned long long clipped = 0;
  for (std::int64_t t = threadIdx.x; t < a.tokens; t += kThreads) clipped += a.clipped[t];
  clipped = block_sum(clipped);
  const OnlineStep step = begin_online(a.quantize.online, __uint_as_float(largest));
  end_online(a.quantize.online, step, clipped, a.tokens * a.width);
}

}  // namespace

void launch_online(const OnlineArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  const dim3 rows = rt::grid(a.tokens);
  rt::run(stream, {"online_absmax", rows, kThreads}, online_absmax, a);
  rt::run(stream, {"online_codes", rows, kThreads}, online_codes, a);
  rt::run(stream, {"online_advance", 1, kThreads}, online_advance, a);
}

}  // namespace leq::LEQ_GPU
