// Prepares q, k and v for attention; one warp processes each (token, head).
#include "cuda/kernels/attention/rope_append.cuh"

#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;

// One chain of loads decides how long this kernel takes for one row: run, then angles and page.
__global__ void __launch_bounds__(kThreads)
    rope_append(const LEQ_GRID_CONSTANT RopeAppendArguments a, float query_factor) {
  LEQ_BOUNDS(kThreads);
  LEQ_DYNAMIC_SHARED(float, heads);
  ptx::let_successor_start();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int dims = a.heads.head_dim, row = static_cast<int>(blockIdx.x);
  const int index = static_cast<int>(blockIdx.y * kWarps + warp);  // among q, k and v heads
  float* const x = heads + warp * 2 * head_stride(dims);
  float* const gains = x + head_stride(dims);
  if (!a.batch.settled) ptx::wait_for_predecessor();
  if (index >= heads_of_row(a)) return ptx::wait_for_predecessor();
  const HeadPlace place(a, row, index);
  const Angles angles = angles_of(a, index, place.position, lane);
  const float* const gain = gain_of(a, index);
  if (gain != nullptr) {
    for_quads(gain, dims, lane, [&](int c, const Quad& quad) { store_quad(gains, c, dims, quad); });
  }
  ptx::wait_for_predecessor();
  const float* const from = a.qkv.values + row * a.qkv.stride + std::int64_t{index} * dims;
  append_head(a, query_factor, place, angles, row, index, x, gains, lane,
              [&](int c) { return load_quad(from, c, dims); });
}

}  // namespace

void launch_rope_append(const RopeAppendArguments& a, rt::Stream& stream) {
  rt::run(
      stream,
      {"rope_append", rt::grid(a.batch.tokens, div_up(heads_of_row(a), kWarps)), kThreads,
       std::size_t{2 * kWarps} * head_stride(a.heads.head_dim) * sizeof(float), rt::Start::early},
      rope_append, a, query_factor_of(a));
}

}  // namespace leq::LEQ_GPU
