// Packed codes as operands of mma m16n8k16. The bits of a code u, extracted from its word, become
// the low bits of an f16, which is then a subnormal number: u 2^-24, or a few powers of two more.
// This number and its product with any f16 are exact. The power is the same along a sum and is
// removed from the finished sum (code_unit), so that nothing is subtracted from codes or sums.
#pragma once

#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/kernels/attention/kv_page.cuh"
#include "cuda/layout/kv_codes.h"

namespace leq::LEQ_GPU {

// The factor that converts a sum of codes' f16 numbers, for columns 8 n ... 8 n + 7 of a unit.
__device__ constexpr float code_unit(int n) {
  // The codes of the upper columns begin at bit 4 of their half word instead of at bit 0.
  return n == 0 ? 16777216.0f : 1048576.0f;
}

// A lane's part of 16 positions x 16 channels: b[n][k] is the register for columns 8 n ... 8 n + 7
// and rows 8 k ... 8 k + 7 of the operand.
struct UnitOperand {
  std::uint32_t b[2][2];
};

// Unpacks a lane's word of a unit (cuda/layout/kv_codes.h).
template <KvPart part>
__device__ __forceinline__ UnitOperand unit_of_word(std::uint32_t word) {
  UnitOperand unit;
  constexpr std::uint32_t kLow = 0x000f000fu, kHigh = kLow << 4;
  const std::uint32_t next = word >> (part == KvPart::values ? 8 : 4);
  unit.b[0][0] = word & kLow;
  unit.b[0][1] = next & kLow;
  if constexpr (part == KvPart::keys) {
    unit.b[1][0] = next & kHigh;
    unit.b[1][1] = word >> 8 & kHigh;
  } else {
    unit.b[1][0] = word & kHigh;
    unit.b[1][1] = next & kHigh;
  }
  return unit;
}

// `words` are the codes of the head in its page.
template <KvPart part>
__device__ __forceinline__ UnitOperand unit_of_codes(const std::uint32_t* words, int dims, int s16,
                                                     int c16, int lane) {
  return unit_of_word<part>(words[kv_lane_word(part, dims, s16, c16, lane)]);
}

// Scales, or minima, at a lane's indices k of a unit: two neighbours, and the two at k + 8.
struct UnitEnds {
  std::uint32_t near, far;
};
// Loads scales or minima of values, along positions, for two units.
struct TwoUnitEnds {
  UnitEnds unit[2];

  __device__ __forceinline__ TwoUnitEnds(const std::uint16_t* from, int two, unsigned lane) {
    const uint4 all = reinterpret_cast<const uint4*>(from + 32 * two)[lane % 4];
    unit[0] = {all.x, all.y};
    unit[1] = {all.z, all.w};
  }
};
// Loads scales or minima of keys, along channels, for heads of any width; `from` is a block's row.
struct KeyEnds {
  const std::uint16_t* at[2];  // for even units and for odd units

  __device__ __forceinline__ KeyEnds(const std::uint16_t* from, int dims, unsigned lane) {
    const bool wide = kv_wide(dims);
    at[0] = from + lane % 4 * (wide ? 8 : 4);
    at[1] = at[0] - (wide ? 12 : 0);
  }
  // `further` is the offset (in numbers) of the row to read.
  __device__ __forceinline__ UnitEnds of(int unit, int further) const {
    const uint2 both = *reinterpret_cast<const uint2*>(at[unit % 2] + 16 * unit + further);
    return {both.x, both.y};
  }
};

// Multiplies an operand of 16 rows by the scales along k.
__device__ __forceinline__ void fold_scales(const std::uint32_t (&a)[4], const UnitEnds& scales,
                                            std::uint32_t (&folded)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    folded[i] = ptx::f16x2_fma(a[i], i < 2 ? scales.near : scales.far, 0u);
  }
}

}  // namespace leq::LEQ_GPU
