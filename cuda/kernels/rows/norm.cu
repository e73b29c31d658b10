// RMS norm or layer norm of rows, which are then encoded as int8 codes or terms. One block
// processes a row and keeps it in shared memory, so that the row is read from memory once.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/held.cuh"
#include "cuda/kernels/rows/online.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;  // a norm's sums have one lane per thread

// Returns the sum over all threads' lanes in every thread. A barrier must precede the next call.
__device__ float lanes_sum(float lane) {
  LEQ_SHARED(float[kThreads], lanes);
  lanes[threadIdx.x] = lane;
  __syncthreads();
  float parts[kThreads / 32];
  for (unsigned i = 0; i < kThreads / 32; ++i) parts[i] = lanes[threadIdx.x % 32 + 32 * i];
  return norm_lanes_sum(parts);
}

// The mean of a layer norm (otherwise 0), and r = 1 / sqrt(mean of squares + eps).
struct Moments {
  float mean, r;
};

// `x` holds the threads' columns of the row; further columns are in shared memory.
__device__ Moments moments(const HeldColumns<kThreads>& x, const NormArguments& a) {
  const auto n = static_cast<float>(a.width);
  float mean = 0;
  if (a.form == NormForm::layer) {
    float sum = 0;
    for_columns<kThreads>(a.width, [&](int k, int i) { sum += column_of(x, k, i); });
    mean = lanes_sum(sum) / n;
    __syncthreads();
  }
  float squares = 0;
  for_columns<kThreads>(a.width, [&](int k, int i) {
    const float centred = column_of(x, k, i) - mean;
    squares = fmaf(centred, centred, squares);
  });
  return {mean, 1.0f / sqrtf(lanes_sum(squares) / n + a.eps)};
}

// `out` may alias x (and gain, for the compiler), so a thread reads all inputs before it writes.
__global__ void __launch_bounds__(kThreads) norm_rows(const LEQ_GRID_CONSTANT NormArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_DYNAMIC_SHARED(float, row);
  ptx::let_successor_start();
  const bool layer = a.form == NormForm::layer;
  const HeldColumns<kThreads> gain(a.gain, a.width), smooth(a.inv_smooth, a.width);
  const HeldColumns<kThreads> beta(layer ? a.beta : nullptr, a.width);
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x;
  HeldColumns<kThreads> x(a.x.values + token * a.x.stride, a.width);
  for_columns<kThreads>(a.width, [&](int k, int i) {
    if (i == kHeldColumns) row[k] = x.from[k];
  });
  x.from = row;
  const Moments m = moments(x, a);
  for_columns<kThreads>(a.width, [&](int k, int i) {
    float y = (column_of(x, k, i) - m.mean) * m.r * column_of(gain, k, i);
    if (layer) y = y + column_of(beta, k, i);
    if (a.inv_smooth != nullptr) y = y * column_of(smooth, k, i);
    row[k] = y;
    if (a.out.values != nullptr) a.out.values[token * a.out.stride + k] = y;
  });
  __syncthreads();
  finish_row(row, token, a.width, a.quantize);
}

}  // namespace

void launch_norm(const NormArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(stream,
          {"norm_rows", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads),
           static_cast<std::size_t>(a.width) * sizeof(float), rt::Start::early},
          norm_rows, a);
}

}  // namespace leq::LEQ_GPU
