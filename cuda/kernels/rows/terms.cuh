// Splits f32 rows into "terms", 16-bit floats for tensor cores (TermRows in launch.h), by a block.
#pragma once

#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/rows/quantize.cuh"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {

// 2^n for n in -126 ... 127
__device__ __forceinline__ float power_of_two(int n) { return __int_as_float((n + 127) << 23); }

// Rows are scaled to a largest number in [2^14, 2^15), so that f16 represents 2^-39 of it. Numbers
// that are not finite, and sums with them, become NaN or infinity without extra handling.
__device__ __forceinline__ int upscaling(unsigned absmax_bits) {
  constexpr int kLargest = 14, kBias = 127, kSubnormal = 100;
  if (absmax_bits == 0) return 0;
  if (absmax_bits >= 0x00800000u) return kLargest + kBias - static_cast<int>(absmax_bits >> 23);
  const float normal = __uint_as_float(absmax_bits) * power_of_two(kSubnormal);
  return kLargest + kBias + kSubnormal - static_cast<int>(__float_as_uint(normal) >> 23);
}

// Extracts the next term of each of two numbers and subtracts the term from its number.
template <int count>
__device__ __forceinline__ std::uint32_t take_pieces(float& first, float& second) {
  const std::uint32_t both =
      count == 2 ? ptx::f16x2_of(first, second) : ptx::bf16x2_of(first, second);
  const auto low = static_cast<std::uint16_t>(both), high = static_cast<std::uint16_t>(both >> 16);
  first = first - (count == 2 ? ptx::f16_to_f32(low) : ptx::bf16_to_f32(low));
  second = second - (count == 2 ? ptx::f16_to_f32(high) : ptx::bf16_to_f32(high));
  return both;
}

// A thread splits eight columns at a time: the columns that one lane of an mma reads.
template <int count>
__device__ __forceinline__ void cut_columns(const float* row, std::int64_t width, int up,
                                            std::uint16_t* out) {
  const float by[2] = {power_of_two(up / 2), power_of_two(up - up / 2)};
  for (std::int64_t i = threadIdx.x; i < padded_columns(width) / 8; i += blockDim.x) {
    float rest[8];
    for (int half = 0; half < 2; ++half) {
      const Quad quad = load_quad(row, static_cast<int>(i / 4 * 32 + half * 16 + i % 4 * 4),
                                  static_cast<int>(width));
      for (int j = 0; j < 4; ++j) rest[half * 4 + j] = quad.x[j] * by[0] * by[1];
    }
    for (int term = 0; term < count; ++term) {
      uint4 words;
      words.x = take_pieces<count>(rest[0], rest[1]);
      words.y = take_pieces<count>(rest[2], rest[3]);
      words.z = take_pieces<count>(rest[4], rest[5]);
      words.w = take_pieces<count>(rest[6], rest[7]);
      reinterpret_cast<uint4*>(out + (i / 4 * count + term) * 32)[i % 4] = words;
    }
  }
}

// Splits row `token`; row_absmax ends with a barrier, after which threads see the whole row.
__device__ __forceinline__ void cut_row(const float* row, std::int64_t token, std::int64_t width,
                                        const TermRows& out) {
  const int up = upscaling(row_absmax(row, width));
  if (threadIdx.x == 0) {
    out.scales[token * 2] = power_of_two(-(up / 2));
    out.scales[token * 2 + 1] = power_of_two(up / 2 - up);
  }
  std::uint16_t* const to = out.terms + token * out.stride;
  if (out.count == 2) return cut_columns<2>(row, width, up, to);
  cut_columns<3>(row, width, up, to);
}

}  // namespace leq::LEQ_GPU
