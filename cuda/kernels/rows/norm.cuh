// RMS norm or layer norm of a row by a block, which encodes it as int8 codes or terms.
#pragma once

#include "cuda/intrinsics/last_block.cuh"
#include "cuda/kernels/rows/online.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kNormThreads = 256;               // a norm's sums have one lane per thread
inline constexpr int kNormColumns = kNormThreads * 4;  // a quad per thread

// A lane's columns of a row: threadIdx.x + i * kNormThreads. The first ones are in registers, 0
// past the width, so that their loads are in flight together; others are read at each use.
struct LaneColumns {
  static constexpr int kHeld = 16;
  const float* from;
  int width;
  float held[kHeld];

  __device__ __forceinline__ LaneColumns(const float* row, int columns)
      : from(row + threadIdx.x), width(columns - static_cast<int>(threadIdx.x)) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      held[i] = i * kNormThreads < width ? from[i * kNormThreads] : 0.0f;
    }
  }
  // Calls add(sum, x, exists) for the columns in ascending order, also for zeros past the width.
  template <class Add>
  __device__ __forceinline__ float sum(Add add) const {
    float total = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) total = add(total, held[i], i * kNormThreads < width);
#pragma unroll 8
    for (int k = kHeld * kNormThreads; k < width; k += kNormThreads) {
      total = add(total, from[k], true);
    }
    return total;
  }
};

// Returns the sum over all threads' lanes in every thread. A barrier must precede the next call.
__device__ __forceinline__ float lanes_sum(float lane) {
  LEQ_SHARED(float[kNormThreads], lanes);
  lanes[threadIdx.x] = lane;
  __syncthreads();
  float parts[kNormThreads / 32];
  for (unsigned i = 0; i < kNormThreads / 32; ++i) parts[i] = lanes[threadIdx.x % 32 + 32 * i];
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
struct NormFactors {
  Quad gain, smooth;

  __device__ __forceinline__ NormFactors(const NormArguments& a, int k) : smooth() {
    const int width = static_cast<int>(a.width);
    gain = load_quad(a.gain, k, width);
    if (a.inv_smooth != nullptr) smooth = load_quad(a.inv_smooth, k, width);
  }
};

__device__ __forceinline__ Quad normed(const Quad& x, const NormFactors& by, const Moments& m,
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

// Stores a thread's quad of `token` as f32 and, if groups have their own scales, as codes.
__device__ __forceinline__ void store_normed(const NormArguments& a, std::int64_t token, int k,
                                             const Quad& y) {
  if (a.out.values != nullptr) {
    store_quad(a.out.values + token * a.out.stride, k, static_cast<int>(a.width), y);
  }
  if (a.quantize.out.codes == nullptr) return;
  quantize_quad(y, token, k - static_cast<int>(threadIdx.x % 32) * 4, a.quantize);
}

// Whether norm_fresh_row can follow a matmul of one token with these outputs in its launch, and the
// bytes of shared memory that it needs.
inline std::size_t row_bytes(const NormArguments& a) {
  return static_cast<std::size_t>(padded_columns(a.width)) * sizeof(float);
}
inline bool joins_outputs(const NormArguments& a, const FloatRows& outputs, std::int64_t count) {
  return a.tokens == 1 && a.x.values == outputs.values && a.width == count &&
         a.out.values != a.x.values && has_own_groups(a.quantize) && row_bytes(a) <= 96 << 10 &&
         !rt::has_debug_option("no-join");
}

// The norm of row 0 by one block of kNormThreads, for a row that other blocks of the same launch
// have written. `row` is shared memory for the padded row. Codes have their own groups.
__device__ __forceinline__ void norm_fresh_row(const NormArguments& a, float* row) {
  constexpr int kLoads = 16;  // in flight together
  const int width = static_cast<int>(a.width), last = static_cast<int>(padded_columns(width));
  for (int first = static_cast<int>(threadIdx.x); first < last; first += kLoads * kNormThreads) {
    float x[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      x[i] = read_fresh(a.x.values + min(first + i * kNormThreads, width - 1));
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int k = first + i * kNormThreads;
      if (k < last) row[k] = k < width ? x[i] : 0.0f;
    }
  }
  const Moments m = moments(LaneColumns(row, width), a);
  for (int k = static_cast<int>(threadIdx.x) * 4; k < last; k += kNormColumns) {
    const Quad x = *reinterpret_cast<const Quad*>(row + k);
    store_normed(a, 0, k, normed(x, NormFactors(a, k), m, a, k));
  }
}

}  // namespace leq::LEQ_GPU
