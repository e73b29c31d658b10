// Code shared by matmuls: the conversion of int32 sums over columns to floats, and the epilogue of
// y = x W^T + bias (docs/numerics.md).
#pragma once

#include "cuda/intrinsics/float_math.cuh"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/reduce.cuh"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/matmul/packed_codes.cuh"
#include "cuda/kernels/rows/quantize.cuh"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {

// Numbers of columns that share scales, and hence the columns of one int32 sum.
struct Grouping {
  int columns;       // Kp (padded)
  int weight_group;  // 0: the whole row
  int token_group;   // 0: the whole row
  int group;         // the finer of the two groups; 0: neither side has groups

  __device__ __forceinline__ explicit Grouping(const IntMatmul& a)
      : columns(static_cast<int>(round_up_to(a.columns, 128))),
        weight_group(a.segments[0].weight.group),
        token_group(a.x.group),
        group(weight_group == 0  ? token_group
              : token_group == 0 ? weight_group
                                 : min(weight_group, token_group)) {}
};

// Inverting the top bit converts unsigned bytes (uint8) to signed ones: u - 128, zero - 128.
__device__ __forceinline__ bool has_unsigned_bytes(const CodeWeight& weight) {
  return weight.bits == 8 && weight.zeros != nullptr;
}
__device__ __forceinline__ std::uint32_t byte_flip(const CodeWeight& weight) {
  return has_unsigned_bytes(weight) ? kTopBits : 0u;
}

// The bits that signed_quad inverts. The shift yields 0 (tokens are fewer than 2^40) but makes the
// value opaque to the compiler, which keeps it in a register.
template <int bits>
__device__ __forceinline__ Decoder<bits> signed_flip(const IntMatmul& a) {
  if constexpr (bits == kTableBits) {
    const auto& table = a.segments[0].weight.table;
    return {{table[0], table[1], table[2], table[3]}};
  } else if constexpr (bits == 8) {
    return byte_flip(a.segments[0].weight);
  } else {
    return kTopBits + __shfl_xor_sync(kEveryLane, static_cast<std::uint32_t>(a.tokens >> 40), 1);
  }
}

// Scale and zero point of a row's codes at `column`; if the row has one scale, this scale is 1.
struct RowGroup {
  float scale;
  int zero;
};
__device__ __forceinline__ RowGroup row_group(const CodeWeight& weight, const Grouping& grouping,
                                              int row, int column) {
  RowGroup group = {1.0f, weight.zero};
  std::int64_t at = row;
  if (grouping.weight_group > 0) {
    const int shift = group_shift(grouping.weight_group);
    at = std::int64_t{row} * (grouping.columns >> shift) + (column >> shift);
    group.scale = ptx::f16_to_f32(weight.group_scales[at]) * weight.scale_mul;
  }
  if (weight.zeros != nullptr) {
    group.zero = weight.zeros[at] - (has_unsigned_bytes(weight) ? 128 : 0);
  }
  return group;
}

// A row's constants for its outputs, read once. Scales of groups are already in the sums.
struct RowFinish {
  float scale = 1;
  float bias = 0;
  bool has_bias = false;

  __device__ __forceinline__ RowFinish(const CodeSegment& segment, int row) {
    if (segment.weight.group == 0) scale = segment.weight.row_scales[row];
    has_bias = segment.bias != nullptr;
    if (has_bias) bias = segment.bias[row];
  }
  // Returns y from the sum over the columns.
  __device__ __forceinline__ float value(float token_scale, float sum) const {
    const float both = token_scale * scale;
    return has_bias ? fmaf(sum, both, bias) : sum * both;
  }
};
// Returns a token's scale if its row has one scale, else 1, as scales of groups are in the sums.
__device__ __forceinline__ float row_scale_of(const IntMatmul& a, std::int64_t token) {
  return a.x.group == 0 ? a.x.scales[token * a.x.scale_stride] : 1.0f;
}
__device__ __forceinline__ float finished_sum(const IntMatmul& a, const CodeSegment& segment,
                                              int row, std::int64_t token, float sum) {
  return RowFinish(segment, row).value(row_scale_of(a, token), sum);
}

// The epilogue of y. If gated y is gate and `up` is up; for add `before` is the old output.
__device__ __forceinline__ float finished(Finish how, float y, float up, float before) {
  if (how == Finish::add) return before + y;
  if (how == Finish::swiglu) return device_silu(y) * up;
  if (how == Finish::geglu) return device_gelu(y) * up;
  if (how == Finish::clamped_swiglu) return device_clamped_swiglu(y, up);
  if (how == Finish::silu) return device_silu(y);
  return how == Finish::gelu ? device_gelu(y) : y;
}
// Writes one y. A thread with several outputs reads all inputs before its first write, because the
// compiler cannot move reads before writes to `out`, which may alias the inputs.
__device__ __forceinline__ void finish(Finish how, const FloatRows& out, std::int64_t token,
                                       std::int64_t column, float y, float up) {
  float* const at = out.values + token * out.stride + column;
  *at = finished(how, y, up, how == Finish::add ? *at : 0.0f);
}

// Scales a group's int32 sum (zero point subtracted) and adds it to an f32 chain. The sum starts at
// the bits of 1.5 * 2^23, so that within +-2^22 it has the bits of that float plus the sum and
// needs no conversion. 128 columns of bytes reach 128 * 127 * (128 + 128) < 2^22 at most.
struct ScaledSum {
  static constexpr int kStart = 0x4b400000;
  float total = 0;

  __device__ __forceinline__ void add(int bits, float scale) {
    total = fmaf(__int_as_float(bits) - 12582912.0f, scale, total);
  }
};

}  // namespace leq::LEQ_GPU
