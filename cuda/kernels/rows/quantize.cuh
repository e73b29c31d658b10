// Encodes rows as int8 codes by a whole block. This is the device's only implementation of the
// quantizer arithmetic (docs/numerics.md), shared by the kernels that finish rows.
#pragma once

#include "cuda/intrinsics/reduce.cuh"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/rows/quads.cuh"
#include "cuda/layout/layout.h"
#include "tensor/quant_scheme.h"

namespace leq::LEQ_GPU {

// The bits of |x|, which compare like |x|; the bits of infinity and NaN are the largest.
__device__ __forceinline__ unsigned magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

__device__ __forceinline__ void report_row(const Fault& fault, std::int64_t row) {
  const unsigned long long found = static_cast<unsigned long long>(fault.site) << 32 |
                                   static_cast<unsigned long long>(fault.first_row + row);
  atomicMin(fault.first, found);
}

struct StepSize {
  float scale, inverse;
};

__device__ __forceinline__ StepSize step_size(unsigned absmax_bits) {
  const float absmax = __uint_as_float(absmax_bits);
  if (absmax < kSmallestAbsmax) return {1.0f, 0.0f};
  return {absmax / 127.0f, 127.0f / absmax};
}

__device__ __forceinline__ int code_of(float x, float inverse) {
  return __float2int_rn(fminf(fmaxf(x * inverse, -127.0f), 127.0f));
}

__device__ __forceinline__ unsigned absmax_of(const Quad& quad) {
  unsigned largest = 0;
  for (int i = 0; i < 4; ++i) largest = max(largest, magnitude_bits(quad.x[i]));
  return largest;
}

// Returns the bits of the row's largest |x| in every thread. Threads read their own quads before
// the first barrier.
__device__ __forceinline__ unsigned row_absmax(const float* row, std::int64_t width) {
  const int columns = static_cast<int>(width), step = static_cast<int>(blockDim.x) * 4;
  unsigned largest = 0;
#pragma unroll 4
  for (int k = static_cast<int>(threadIdx.x) * 4; k < columns; k += step) {
    largest = max(largest, absmax_of(load_quad(row, k, columns)));
  }
  return block_max(largest);
}

// The sum of codes over 32, 64 or 128 neighbouring columns, of which each lane has four. The first
// lane of a group returns the group's sum.
__device__ __forceinline__ int group_sum(int sum, int columns) {
  if (columns == 128) return warp_sum(sum);
  for (int step = columns / 8; step > 0; step /= 2) sum += __shfl_xor_sync(kEveryLane, sum, step);
  return sum;
}

// Writes the codes of a lane's four columns, from `first` + 4 lane on, and sums over up to 128
// columns. Returns the sum of the lane's four codes.
__device__ __forceinline__ int store_codes(const Quad& quad, float inverse, std::int64_t token,
                                           std::int64_t first, const CodeRows& out) {
  const unsigned lane = threadIdx.x % 32;
  unsigned packed = 0;
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    const int code = code_of(quad.x[i], inverse);
    packed |= (static_cast<unsigned>(code) & 0xffu) << 8 * i;
    sum += code;
  }
  *reinterpret_cast<unsigned*>(out.codes + token * out.code_stride + first + lane * 4) = packed;
  if (out.sums == nullptr || out.sum_group > 128) return sum;
  const int all = group_sum(sum, out.sum_group), shift = group_shift(out.sum_group);
  const unsigned of_lane = lane >> (shift - 2);
  if (lane == of_lane << (shift - 2)) {
    out.sums[token * out.sum_stride + (first >> shift) + of_lane] = all;
  }
  return sum;
}

// The maximum over the eight lanes that share 32 columns.
__device__ __forceinline__ unsigned max_of_eight(unsigned x) {
  for (int step = 4; step > 0; step /= 2) x = max(x, __shfl_xor_sync(kEveryLane, x, step));
  return x;
}

// The step size of a lane's group of 128 or 32 columns; a warp has 128 columns from `first` on,
// four per lane. If a number is not finite, the row is reported and there is no step size.
struct GroupStepSize {
  StepSize step;
  bool exists;
};
__device__ __forceinline__ GroupStepSize group_step(const Quad& quad, std::int64_t token,
                                                    std::int64_t first, const Quantize& q) {
  const unsigned own = absmax_of(quad), largest = warp_max(own), lane = threadIdx.x % 32;
  if (largest >= 0x7f800000u) {
    if (lane == 0) report_row(q.fault, token);
    return {{}, false};
  }
  const bool whole = q.out.group == 128;
  const StepSize step = step_size(whole ? largest : max_of_eight(own));
  const unsigned shift = whole ? 5 : 3;  // log2 of the number of lanes in a group
  if ((lane & ((1u << shift) - 1)) == 0) {
    q.out.scales[token * q.out.scale_stride + (first >> (shift + 2)) + (lane >> shift)] =
        step.scale;
  }
  return {step, true};
}

// Encodes a warp's 128 columns from `first` on, with scales of groups.
__device__ __forceinline__ void quantize_quad(const Quad& quad, std::int64_t token,
                                              std::int64_t first, const Quantize& q) {
  const GroupStepSize group = group_step(quad, token, first, q);
  if (group.exists) store_codes(quad, group.step.inverse, token, first, q.out);
}

// Returns whether each 128 columns of a row can be encoded alone, by quantize_quad.
inline bool has_own_groups(const Quantize& q) {
  if (q.terms.terms != nullptr) return false;
  if (q.out.codes == nullptr) return true;
  return q.out.group > 0 && (q.out.sums == nullptr || q.out.sum_group <= 128) && q.scale == 0 &&
         q.online == nullptr;
}

// Writes codes, scales and sums of row `token`, of which threads read their own quads. Padding up
// to ceil128(width) gets code 0. A row that is not finite is reported and gets no codes.
__device__ __forceinline__ void quantize_row(const float* row, std::int64_t token,
                                             std::int64_t width, const Quantize& q) {
  const CodeRows& out = q.out;
  const bool known = q.scale > 0, grouped = out.group > 0;
  StepSize step = {q.scale, q.inverse};
  if (known || !grouped) {
    const unsigned largest = row_absmax(row, width);
    if (largest >= 0x7f800000u) {
      if (threadIdx.x == 0) report_row(q.fault, token);
      return;
    }
    if (!known) step = step_size(largest);
    if (threadIdx.x == 0) out.scales[token * out.scale_stride] = step.scale;
  }
  const int columns = static_cast<int>(width);
  int row_sum = 0;
#pragma unroll 2
  for (int first = static_cast<int>(threadIdx.x / 32 * 128); first < padded_columns(columns);
       first += static_cast<int>(blockDim.x) * 4) {
    const Quad quad = load_quad(row, first + static_cast<int>(threadIdx.x % 32) * 4, columns);
    if (!known && grouped) {
      const GroupStepSize of_group = group_step(quad, token, first, q);
      if (!of_group.exists) continue;
      step = of_group.step;
    }
    row_sum += store_codes(quad, step.inverse, token, first, out);
  }
  if (out.sums == nullptr || out.sum_group <= 128) return;
  row_sum = block_sum(row_sum);
  if (threadIdx.x == 0) out.sums[token * out.sum_stride] = row_sum;
}

}  // namespace leq::LEQ_GPU
