// Kernels of packed codes with 128-bit registers: four of them replace one 512-bit register. Up to
// 3 queries share the codes of each load.
#include "backend/cpu/attention/packed_kernels.h"

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/attention/packed_kernels.inc"

constexpr int kRowsAtOnce = 3;

struct Sixteen {
  float32x4_t part[4];
};

Sixteen floats_of(uint8x16_t codes) {
  const uint16x8_t low = vmovl_u8(vget_low_u8(codes)), high = vmovl_u8(vget_high_u8(codes));
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
           vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
           vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
           vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}

// Extracts the codes of key block `place` from a row of 16 bytes, which holds several blocks.
template <int bits>
Sixteen keys16(const std::uint8_t* row, int place) {
  uint8x16_t codes = vld1q_u8(row);
  if constexpr (bits < 8) {
    codes = vshlq_u8(codes, vdupq_n_s8(static_cast<std::int8_t>(-place * bits)));
    codes = vandq_u8(codes, vdupq_n_u8((1 << bits) - 1));
  }
  return floats_of(codes);
}

// Unpacks the codes of 16 channels, in ascending order (kv_layout.h).
template <int bits>
Sixteen channels16(const std::uint8_t* at) {
  if constexpr (bits == 8) return floats_of(vld1q_u8(at));
  if constexpr (bits == 4) {
    constexpr std::uint8_t kOrder[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const uint8x8_t both = vld1_u8(at);
    const uint8x16_t digits = vcombine_u8(vand_u8(both, vdup_n_u8(15)), vshr_n_u8(both, 4));
    return floats_of(vqtbl1q_u8(digits, vld1q_u8(kOrder)));
  }
  constexpr std::uint8_t kBytes[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  constexpr std::int8_t kShifts[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
  std::uint32_t four;
  __builtin_memcpy(&four, at, sizeof four);
  const uint8x16_t bytes = vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(four)), vld1q_u8(kBytes));
  return floats_of(vandq_u8(vshlq_u8(bytes, vld1q_s8(kShifts)), vdupq_n_u8(3)));
}

// Computes the scores of one block of 16 keys for queries [first, first + R).
template <int bits, int R>
void score_block(const PackedScoreTile& tile, int block, int first) noexcept {
  constexpr int kBlocks = 8 / bits;  // blocks of 16 keys in a row of 16 bytes
  const std::uint8_t* rows = tile.keys + std::int64_t{block / kBlocks} * tile.dims * 16;
  const float* query[R];
  float32x4_t sums[R][4];
  for (int r = 0; r < R; ++r) {
    query[r] = tile.query[first + r][block / 2];
    for (float32x4_t& sum : sums[r]) sum = vdupq_n_f32(tile.start[first + r][block / 2]);
  }
  for (int c = 0; c < tile.dims; ++c) {
    const Sixteen key = keys16<bits>(rows + c * 16, block % kBlocks);
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < 4; ++i) sums[r][i] = vfmaq_n_f32(sums[r][i], key.part[i], query[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) {
      vst1q_f32(tile.scores[first + r] + block * kKeyBlock + i * 4, sums[r][i]);
    }
  }
}

template <int bits>
void neon_scores(const PackedScoreTile& tile) noexcept {
  for (int block = tile.first_block; block < tile.last_block; ++block) {
    int first = 0;
    for (; first + kRowsAtOnce <= tile.queries; first += kRowsAtOnce) {
      score_block<bits, kRowsAtOnce>(tile, block, first);
    }
    for (; first < tile.queries; ++first) score_block<bits, 1>(tile, block, first);
  }
}

// Adds to 16 channels, from `column` on, of queries [first, first + R); results go to `out`.
template <int bits, int R>
void value_some(const PackedValueTile& tile, int column, int first, float* const* out) noexcept {
  const std::uint8_t* values = tile.values + column / 16 * 2 * bits;
  const int group = column / tile.group * kPageColumns;
  float32x4_t sums[R][4];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) sums[r][i] = vld1q_f32(out[r] + i * 4);
  }
  for (int j = tile.first; j < tile.last; ++j) {
    const Sixteen value = channels16<bits>(values + j * tile.row_bytes);
    for (int r = 0; r < R; ++r) {
      const float weight = tile.weights[first + r][group + j];
      for (int i = 0; i < 4; ++i) sums[r][i] = vfmaq_n_f32(sums[r][i], value.part[i], weight);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) vst1q_f32(out[r] + i * 4, sums[r][i]);
  }
}

// If fewer than 16 columns remain, they are computed in a temporary buffer.
template <int bits, int R>
void value_rows(const PackedValueTile& tile, int first) noexcept {
  for (int column = 0; column < tile.dims; column += 16) {
    const int count = tile.dims - column < 16 ? tile.dims - column : 16;
    float buffer[R][16] = {};
    float* out[R];
    for (int r = 0; r < R; ++r) {
      float* const own = tile.out[first + r] + column;
      out[r] = count == 16 ? own : buffer[r];
      for (int i = 0; count < 16 && i < count; ++i) buffer[r][i] = own[i];
    }
    value_some<bits, R>(tile, column, first, out);
    for (int r = 0; r < R; ++r) {
      for (int i = 0; count < 16 && i < count; ++i) tile.out[first + r][column + i] = buffer[r][i];
    }
  }
}

template <int bits>
void neon_values(const PackedValueTile& tile) noexcept {
  int first = 0;
  for (; first + kRowsAtOnce <= tile.queries; first += kRowsAtOnce) {
    value_rows<bits, kRowsAtOnce>(tile, first);
  }
  for (; first < tile.queries; ++first) value_rows<bits, 1>(tile, first);
}

constexpr PackedKernels neon_kernels() {
  PackedKernels all = kPackedKernels;
  all.scores[0] = neon_scores<8>;
  all.scores[1] = neon_scores<4>;
  all.scores[2] = neon_scores<2>;
  all.values[0] = neon_values<8>;
  all.values[1] = neon_values<4>;
  all.values[2] = neon_values<2>;
  return all;
}
constexpr PackedKernels kNeonPacked = neon_kernels();

}  // namespace

const PackedKernels& packed_kernels_neon() { return kNeonPacked; }

}  // namespace leq::cpu
