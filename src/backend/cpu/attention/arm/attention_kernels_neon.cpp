// Attention kernels with 128-bit registers. Four registers hold one dimension of 16 keys, or 16
// dimensions of one value. Queries share each load.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/rows/arm/floats_neon.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/attention/attention_kernels.inc"

constexpr int kRowsAtOnce = 3;

float32x4_t load4(const float* x) { return vld1q_f32(x); }
float32x4_t load4(const std::uint16_t* x) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}
float32x4_t load4(const std::uint8_t* x) {
  std::uint32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
}

// Scores of key blocks [block, block + B), 16 keys each; one fma chain per key and query.
template <class Key, int R, int B>
void float_blocks(const ScoreTile& tile, int block, int first) noexcept {
  const std::int64_t dims = tile.dims;
  const Key* keys = static_cast<const Key*>(tile.keys) + block * dims * kKeyBlock;
  const float* query[R];
  float32x4_t sums[R][4 * B];
  for (int r = 0; r < R; ++r) {
    query[r] = tile.query[first + r];
    for (int i = 0; i < 4 * B; ++i) sums[r][i] = vdupq_n_f32(0.0f);
  }
  for (std::int64_t c = 0; c < dims; ++c) {
    for (int i = 0; i < 4 * B; ++i) {
      const float32x4_t key = load4(keys + (i / 4 * dims + c) * kKeyBlock + i % 4 * 4);
      for (int r = 0; r < R; ++r) sums[r][i] = vfmaq_n_f32(sums[r][i], key, query[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4 * B; ++i) {
      vst1q_f32(tile.scores[first + r] + block * kKeyBlock + i * 4, sums[r][i]);
    }
  }
}

// One query alone has few fma chains, so that two blocks of keys at a time hide more latency.
template <class Key, int R>
void float_rows(const ScoreTile& tile, int first) noexcept {
  constexpr int kBlocks = R == 1 ? 2 : 1;
  int block = tile.first_block;
  for (; block + kBlocks <= tile.last_block; block += kBlocks) {
    float_blocks<Key, R, kBlocks>(tile, block, first);
  }
  for (; block < tile.last_block; ++block) float_blocks<Key, R, 1>(tile, block, first);
}

template <class Key>
void neon_float_scores(const ScoreTile& tile) noexcept {
  int first = 0;
  for (; first + kRowsAtOnce <= tile.queries; first += kRowsAtOnce) {
    float_rows<Key, kRowsAtOnce>(tile, first);
  }
  for (; first < tile.queries; ++first) float_rows<Key, 1>(tile, first);
}

// Scores of a block of 16 keys. Products of codes fit into 16 bits, sums of pairs into 32.
void neon_int8_scores(const ScoreTile& tile) noexcept {
  const std::int64_t quads = (tile.dims + 3) / 4;
  for (int block = tile.first_block; block < tile.last_block; ++block) {
    const auto* keys = static_cast<const std::uint8_t*>(tile.keys) + block * quads * 64;
    for (int r = 0; r < tile.queries; ++r) {
      int32x4_t sums[8];  // [2 keys][2 pairs of channels]
      for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
      for (std::int64_t quad = 0; quad < quads; ++quad) {
        std::int32_t four;
        __builtin_memcpy(&four, tile.codes[r] + quad * 4, sizeof four);
        const int16x8_t query = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
        for (int i = 0; i < 8; ++i) {
          const uint16x8_t codes = vmovl_u8(vld1_u8(keys + quad * 64 + i * 8));
          sums[i] = vpadalq_s16(sums[i], vmulq_s16(vreinterpretq_s16_u16(codes), query));
        }
      }
      std::int32_t totals[kKeyBlock];
      for (int i = 0; i < 4; ++i)
        vst1q_s32(totals + i * 4, vpaddq_s32(sums[2 * i], sums[2 * i + 1]));
      finish_int8(tile, r, block, totals);
    }
  }
}

// Adds to output columns [column, column + 16 D) of queries [first, first + R).
template <class Value, int R, int D>
void value_columns(const ValueTile& tile, std::int64_t column, int first) noexcept {
  const Value* values = static_cast<const Value*>(tile.values) + column;
  float32x4_t sums[R][4 * D];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4 * D; ++i) sums[r][i] = vld1q_f32(tile.out[first + r] + column + i * 4);
  }
  for (std::int64_t j = tile.first; j < tile.last; ++j) {
    for (int i = 0; i < 4 * D; ++i) {
      const float32x4_t value = load4(values + j * tile.dims + i * 4);
      for (int r = 0; r < R; ++r) {
        sums[r][i] = vfmaq_n_f32(sums[r][i], value, tile.weights[first + r][j]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4 * D; ++i) vst1q_f32(tile.out[first + r] + column + i * 4, sums[r][i]);
  }
}

template <class Value, int R>
void value_rows(const ValueTile& tile, int first) noexcept {
  constexpr int kRegisters = R == 1 ? 4 : 1;  // registers of 16 columns
  std::int64_t column = 0;
  for (; column + 16 * kRegisters <= tile.dims; column += 16 * kRegisters) {
    value_columns<Value, R, kRegisters>(tile, column, first);
  }
  for (; column + 16 <= tile.dims; column += 16) value_columns<Value, R, 1>(tile, column, first);
  const Value* values = static_cast<const Value*>(tile.values);
  for (; column < tile.dims; ++column) {
    for (int r = first; r < first + R; ++r) {
      float sum = tile.out[r][column];
      for (std::int64_t j = tile.first; j < tile.last; ++j) {
        sum = __builtin_fmaf(tile.weights[r][j], value_of(values[j * tile.dims + column]), sum);
      }
      tile.out[r][column] = sum;
    }
  }
}

template <class Value>
void neon_values(const ValueTile& tile) noexcept {
  int first = 0;
  for (; first + kRowsAtOnce <= tile.queries; first += kRowsAtOnce) {
    value_rows<Value, kRowsAtOnce>(tile, first);
  }
  for (; first < tile.queries; ++first) value_rows<Value, 1>(tile, first);
}

SpanSum neon_softmax(float* scores, int first, int last) noexcept {
  float max = scores[first];
  for (int j = first + 1; j < last; ++j) max = scores[j] > max ? scores[j] : max;
  const int begin = first / kLaneCount * kLaneCount;
  const int end = (last + kLaneCount - 1) / kLaneCount * kLaneCount;
  for (int j = begin; j < first; ++j) scores[j] = -__builtin_inff();  // exp(-infinity) is +0
  for (int j = last; j < end; ++j) scores[j] = -__builtin_inff();
  float32x4_t lanes[4];
  for (float32x4_t& lane : lanes) lane = vdupq_n_f32(0.0f);
  for (int j = begin; j < end; j += kLaneCount) {
    for (int i = 0; i < 4; ++i) {
      const float32x4_t p = exp_lanes(vsubq_f32(vld1q_f32(scores + j + i * 4), vdupq_n_f32(max)));
      lanes[i] = vaddq_f32(lanes[i], p);
      vst1q_f32(scores + j + i * 4, p);
    }
  }
  return {max, add_lanes(lanes)};
}

constexpr AttentionKernels neon_kernels() {
  AttentionKernels all = kKernels;
  all.kv[0].scores = neon_float_scores<float>;
  all.kv[1].scores = neon_float_scores<std::uint16_t>;
  all.kv[2].scores = neon_int8_scores;
  all.kv[0].values = neon_values<float>;
  all.kv[1].values = neon_values<std::uint16_t>;
  all.kv[2].values = neon_values<std::uint8_t>;
  all.softmax = neon_softmax;
  return all;
}
constexpr AttentionKernels kNeon = neon_kernels();

}  // namespace

const AttentionKernels& attention_kernels_neon() { return kNeon; }

}  // namespace leq::cpu
