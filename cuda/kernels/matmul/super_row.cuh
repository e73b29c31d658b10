// The planes of a weight of a k type, as kernels read them.
#pragma once

#include "cuda/intrinsics/ptx.h"
#include "cuda/kernels/matmul/super.h"

namespace leq::LEQ_GPU {

inline constexpr int kPanel = 64;  // rows of a panel
inline constexpr std::uint32_t kOnes = 0x01010101u;

// Columns that share a sub-scale within a superblock.
template <int bits>
inline constexpr int kSubColumns = bits == 6 ? 16 : 32;

// One row of a weight.
template <int bits>
struct SuperRow {
  static constexpr int kSupers = bits == 6 ? 1 : 2, kHighBits = bits - 4;
  const std::uint8_t* codes;
  const std::uint8_t* high;
  const std::uint16_t* supers;
  const std::uint8_t* subs;

  __device__ __forceinline__ SuperRow(const SuperWeight& w, std::int64_t row,
                                      std::int64_t columns) {
    const std::int64_t panel = row / kPanel, r = row % kPanel;
    codes = w.codes + panel * columns * (kPanel / 2) + r * 4;
    high = w.high + panel * columns * kPanel * kHighBits / 8 + r * 4;
    supers = w.supers + panel * ((columns + 255) / 256) * kSupers * kPanel + r;
    subs = w.subs + panel * (columns / kSubColumns<bits>)*(bits == 6 ? 1 : 2) * kPanel + r;
  }

  // Returns the codes of columns k ... k + 3; k is a multiple of 4.
  __device__ __forceinline__ std::uint32_t quad(int k) const {
    const int q = k / 4;
    const std::uint32_t low = *reinterpret_cast<const std::uint32_t*>(codes + q / 2 * 256);
    std::uint32_t quad = low >> q % 2 * 4 & 0x0f0f0f0fu;
    if constexpr (kHighBits > 0) {
      constexpr int kQuads = 8 / kHighBits;
      constexpr std::uint32_t kMask = ((1u << kHighBits) - 1u) * kOnes;
      const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(high + q / kQuads * 256);
      quad |= (word >> q % kQuads * kHighBits & kMask) << 4;
    }
    return quad;
  }
  __device__ __forceinline__ int scale(int k) const {
    const std::uint8_t byte = subs[k / kSubColumns<bits> * (bits == 6 ? 1 : 2) * kPanel];
    return bits == 6 ? static_cast<std::int8_t>(byte) : byte;
  }
  __device__ __forceinline__ int minimum(int k) const {
    return bits == 6 ? 0 : subs[(k / 32 * 2 + 1) * kPanel];
  }
  __device__ __forceinline__ float super(int k, int which) const {
    return ptx::f16_to_f32(supers[(k / 256 * kSupers + which) * kPanel]);
  }
};

}  // namespace leq::LEQ_GPU
