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

// Codes of four columns from a word with their low bits, `low` >> 4 * odd, and a word with the
// upper bits of 32 / (bits - 4) columns, of which these are quad `q`.
template <int bits>
__device__ __forceinline__ std::uint32_t super_quad(std::uint32_t low, int odd, std::uint32_t high,
                                                    int q) {
  const std::uint32_t quad = low >> odd * 4 & 0x0f0f0f0fu;
  if constexpr (bits == 4) return quad;
  constexpr std::uint32_t kMask = ((1u << (bits - 4)) - 1u) * kOnes << 4;
  const int left = 4 - q * (bits - 4);
  return quad | ((left >= 0 ? high << (left & 31) : high >> (-left & 31)) & kMask);
}

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
    const auto word = [](const std::uint8_t* at) {
      return *reinterpret_cast<const std::uint32_t*>(at);
    };
    if constexpr (kHighBits == 0) return super_quad<bits>(word(codes + q / 2 * 256), q % 2, 0, 0);
    constexpr int kQuads = kHighBits == 0 ? 1 : 8 / kHighBits;
    return super_quad<bits>(word(codes + q / 2 * 256), q % 2, word(high + q / kQuads * 256),
                            q % kQuads);
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
