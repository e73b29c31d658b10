// The NEON kernels: 128-bit registers, four of which hold sixteen lanes.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/arm/lanes_neon.h"
#include "backend/cpu/kernels/arm/matmul_panel.h"
#include "backend/cpu/kernels/delta_lanes.h"
#include "backend/cpu/kernels/float_lanes.h"
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/portable.inc"
#include "backend/cpu/kernels/row_lanes.h"

namespace leq::cpu {
namespace {

// Rows.

constexpr std::int64_t kBlock = 16;  // columns whose codes fill a register

// The codes of sixteen numbers.
uint8x16_t codes_of(const float* x, float inv, int offset) {
  uint16x4_t parts[4];
  for (int i = 0; i < 4; ++i) {
    float32x4_t v = vmulq_n_f32(vld1q_f32(x + 4 * i), inv);
    v = vminq_f32(vmaxq_f32(v, vdupq_n_f32(-127.0f)), vdupq_n_f32(127.0f));
    const int32x4_t code = vaddq_s32(vcvtnq_s32_f32(v), vdupq_n_s32(offset));  // ties to even
    parts[i] = vmovn_u32(vreinterpretq_u32_s32(code));
  }
  return vcombine_u8(vmovn_u16(vcombine_u16(parts[0], parts[1])),
                     vmovn_u16(vcombine_u16(parts[2], parts[3])));
}

// A code with offset 128 differs from the signed byte only in its top bit.
std::int32_t quantize(const float* x, std::int64_t n, float inv, int offset,
                      std::uint8_t* codes) noexcept {
  const uint8x16_t flip = vdupq_n_u8(static_cast<std::uint8_t>(offset));
  int32x4_t sums = vdupq_n_s32(0);
  const auto block = [&](const float* columns, std::uint8_t* to) {
    const uint8x16_t bytes = codes_of(columns, inv, offset);
    sums = vpadalq_s16(sums, vpaddlq_s8(vreinterpretq_s8_u8(veorq_u8(bytes, flip))));
    vst1q_u8(to, bytes);
  };
  std::int64_t k = 0;
  for (; k + kBlock <= n; k += kBlock) block(x + k, codes + k);
  if (k < n) {
    float columns[kBlock] = {};
    std::uint8_t last[kBlock];
    for (std::int64_t i = 0; i < n - k; ++i) columns[i] = x[k + i];
    block(columns, last);
    for (std::int64_t i = 0; i < n - k; ++i) codes[k + i] = last[i];
  }
  return vaddvq_s32(sums);
}

struct Rows128 : Floats128 {
  using Words = uint32x4_t;
  static std::uint32_t most_of(Words words) { return vmaxvq_u32(words); }
  static constexpr auto quantize = cpu::quantize;
};

// Matmuls.

// Four sums over sixteen codes with baseline instructions. Two products of an int8 code and an
// activation in [-127, 127] add up to at most 2 * 128 * 127 = 32,512, which fits into 16 bits.
struct Step {
  template <int kQuad>
  static inline __attribute__((always_inline)) int32x4_t add(int32x4_t c, int8x16_t codes,
                                                             int8x16_t x) {
    const int32x4_t quad = vdupq_laneq_s32(vreinterpretq_s32_s8(x), kQuad);
    const int8x16_t inputs = vreinterpretq_s8_s32(quad);
    const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(inputs));
    const int16x8_t high = vmull_high_s8(codes, inputs);
    return vpadalq_s16(c, vpaddq_s16(low, high));
  }
};

// 24 accumulators for several tokens; 16 for one, whose weights are read as four streams.
struct FloatLanes : Floats128 {
  static constexpr int kTokens = 3, kOutputs = 2, kOutputsAlone = 4, kFetch = 0;
};

// Attention. Four registers hold one dimension of 16 keys, or 16 dimensions of one value. Up to 3
// queries share each load.

constexpr int kRowsAtOnce = 3;

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
      const float32x4_t key = Floats128::load(keys + (i / 4 * dims + c) * kKeyBlock + i % 4 * 4);
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
      plain::finish_int8(tile, r, block, totals);
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
      const float32x4_t value = Floats128::load(values + j * tile.dims + i * 4);
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
        sum = __builtin_fmaf(tile.weights[r][j], plain::value_of(values[j * tile.dims + column]),
                             sum);
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
      const float32x4_t p =
          exp_of<Floats128>(vsubq_f32(vld1q_f32(scores + j + i * 4), vdupq_n_f32(max)));
      lanes[i] = vaddq_f32(lanes[i], p);
      vst1q_f32(scores + j + i * 4, p);
    }
  }
  return {max, Floats128::total(lanes)};
}

// Packed codes of the cache.

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

// Unpacks the codes of 16 channels, in ascending order (kv_pages.h).
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

constexpr AttentionKernels attention_kernels() {
  AttentionKernels all = plain::kAttentionKernels;
  all.kv[0].scores = neon_float_scores<float>;
  all.kv[1].scores = neon_float_scores<std::uint16_t>;
  all.kv[2].scores = neon_int8_scores;
  all.kv[0].values = neon_values<float>;
  all.kv[1].values = neon_values<std::uint16_t>;
  all.kv[2].values = neon_values<std::uint8_t>;
  all.softmax = neon_softmax;
  return all;
}

constexpr PackedKernels packed_kernels() {
  PackedKernels all = plain::kPackedKernels;
  all.scores[0] = neon_scores<8>;
  all.scores[1] = neon_scores<4>;
  all.scores[2] = neon_scores<2>;
  all.values[0] = neon_values<8>;
  all.values[1] = neon_values<4>;
  all.values[2] = neon_values<2>;
  return all;
}

constexpr MatmulKernels matmuls() {
  MatmulKernels kernels = int_matmuls<Step>(Isa::neon);
  kernels.f32 = multiply_floats<FloatLanes, float>;
  kernels.f16 = multiply_floats<FloatLanes, F16>;
  kernels.bf16 = multiply_floats<FloatLanes, Bf16>;
  kernels.float_tile = "3x2";
  return kernels;
}

constexpr MatmulKernels kMatmuls = matmuls();
constexpr AttentionKernels kAttention = attention_kernels();
constexpr PackedKernels kPacked = packed_kernels();

}  // namespace

const KernelLevel& level_neon() {
  static constexpr KernelLevel kLevel = {&kMatmuls, &kRowKernels<Rows128>, &kAttention, &kPacked,
                                         &kDeltaKernels<Floats128>};
  return kLevel;
}

}  // namespace leq::cpu
