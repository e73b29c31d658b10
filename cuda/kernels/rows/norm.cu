// RMS norm or layer norm of rows, which are then encoded as int8 codes or terms. On one
// multiprocessor a row takes more time for instructions than for its bytes, so that several blocks
// share a row if they can: each computes the sums of the whole row, and then its own columns.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/online.cuh"

#include <algorithm>

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;              // a norm's sums have one lane per thread
constexpr int kColumns = kThreads * 4;     // a quad per thread
constexpr std::int64_t kMaxBlocks = 1056;  // 8 on each of 132 multiprocessors

// A lane's columns of a row: threadIdx.x + i * kThreads. The first ones are in registers, 0 past
// the width, so that their loads are in flight together; others are read at each use.
struct LaneColumns {
  static constexpr int kHeld = 16;
  const float* from;
  int width;
  float held[kHeld];

  __device__ __forceinline__ LaneColumns(const float* row, int columns)
      : from(row + threadIdx.x), width(columns - static_cast<int>(threadIdx.x)) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = i * kThreads < width ? from[i * kThreads] : 0.0f;
  }
  // Calls add(sum, x, exists) for the columns in ascending order, also for zeros past the width.
  template <class Add>
  __device__ __forceinline__ float sum(Add add) const {
    float total = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) total = add(total, held[i], i * kThreads < width);
#pragma unroll 8
    for (int k = kHeld * kThreads; k < width; k += kThreads) total = add(total, from[k], true);
    return total;
  }
};

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

__device__ __forceinline__ Moments moments(const LaneColumns& x, const NormArguments& a) {
  const auto n = static_cast<float>(a.width);
  float mean = 0, squares = 0;
  if (a.form == NormForm::layer) {
    mean = lanes_sum(x.sum([](float sum, float number, bool) { return sum + number; })) / n;
    __syncthreads();
    squares = x.sum([&](float sum, float number, bool exists) {
      const float centred = exists ? number - mean : 0.0f;
      return fmaf(centred, centred, sum);
    });
  } else {
    squares = x.sum([](float sum, float number, bool) { return fmaf(number, number, sum); });
  }
  return {mean, 1.0f / sqrtf(lanes_sum(squares) / n + a.eps)};
}

// The vectors that are multiplied into four columns.
struct Factors {
  Quad gain, smooth;

  __device__ __forceinline__ Factors(const NormArguments& a, int k) : smooth() {
    const int width = static_cast<int>(a.width);
    gain = load_quad(a.gain, k, width);
    if (a.inv_smooth != nullptr) smooth = load_quad(a.inv_smooth, k, width);
  }
};

__device__ __forceinline__ Quad normed(const Quad& x, const Factors& by, const Moments& m,
                                       const NormArguments& a, int k) {
  Quad y;
#pragma unroll
  for (int i = 0; i < 4; ++i) y.x[i] = (x.x[i] - m.mean) * m.r * by.gain.x[i];
  if (a.form == NormForm::layer) {
    const Quad beta = load_quad(a.beta, k, static_cast<int>(a.width));
#pragma unroll
    for (int i = 0; i < 4; ++i) y.x[i] = y.x[i] + beta.x[i];
  }
  if (a.inv_smooth != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; ++i) y.x[i] = y.x[i] * by.smooth.x[i];
  }
  return y;
}

// A block has `columns` of row blockIdx.x. If `whole`, it has the whole row and keeps it in shared
// memory, for encodings that depend on all of it. `out` may then alias x: a thread writes the quads
// that it reads, after all lanes have been read.
template <bool whole>
__global__ void __launch_bounds__(kThreads, 4)
    norm_rows(const LEQ_GRID_CONSTANT NormArguments a, int columns) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  const int width = static_cast<int>(a.width), begin = static_cast<int>(blockIdx.y) * columns;
  const int last = min(begin + columns, static_cast<int>(padded_columns(width)));
  int k = begin + static_cast<int>(threadIdx.x) * 4;
  Factors factors(a, k);
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x;
  const float* const from = a.x.values + token * a.x.stride;
  Quad x = load_quad(from, k, width);
  const Moments m = moments(LaneColumns(from, width), a);
  for (; k < last; k += kColumns) {
    const Quad y = normed(x, factors, m, a, k);
    if (k + kColumns < last) {
      x = load_quad(from, k + kColumns, width);
      factors = Factors(a, k + kColumns);
    }
    if (a.out.values != nullptr) store_quad(a.out.values + token * a.out.stride, k, width, y);
    if constexpr (whole) {
      LEQ_DYNAMIC_SHARED(float, row);
      *reinterpret_cast<Quad*>(row + k) = y;
    } else if (a.quantize.out.codes != nullptr) {
      quantize_quad(y, token, k - static_cast<int>(threadIdx.x % 32) * 4, a.quantize);
    }
  }
  if constexpr (whole) {
    LEQ_DYNAMIC_SHARED(float, row);
    finish_row(row, token, a.width, a.quantize);
  }
}

}  // namespace

void launch_norm(const NormArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  const auto tokens = static_cast<unsigned>(a.tokens);
  const std::int64_t padded = padded_columns(a.width), units = (padded + kColumns - 1) / kColumns;
  if (!has_own_groups(a.quantize) || a.out.values == a.x.values) {
    return rt::run(stream,
                   {"norm_rows", dim3(tokens), dim3(kThreads),
                    static_cast<std::size_t>(padded) * sizeof(float), rt::Start::early},
                   norm_rows<true>, a, static_cast<int>(units * kColumns));
  }
  const std::int64_t parts = std::clamp(kMaxBlocks / a.tokens, std::int64_t{1}, units);
  const std::int64_t columns = (units + parts - 1) / parts * kColumns;
  const auto blocks = static_cast<unsigned>((padded + columns - 1) / columns);
  rt::run(stream, {"norm_rows", dim3(tokens, blocks), dim3(kThreads), 0, rt::Start::early},
          norm_rows<false>, a, static_cast<int>(columns));
}

}  // namespace leq::LEQ_GPU
