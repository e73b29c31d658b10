// Grouped matmuls with AMX: the int32 sums of two groups of a unit are stored, and folded into its
// f32 sums while the tiles multiply the next unit.
#pragma once

#include "backend/cpu/x86/matmul_avx512amx.h"

namespace leq::cpu {
namespace {

constexpr int kFoldGroups = 2;  // of a piece

// Scratch: f32 sums of a block, int32 sums of this unit and of the one before, unpacked codes.
constexpr std::int64_t kGroupSumBytes = kFoldGroups * kUnitNumbers * 4;
constexpr std::int64_t kUnpackedAt = kBlockBytes + 2 * kGroupSumBytes;
static_assert(kUnpackedAt + kPieceColumns * 64 <= static_cast<std::int64_t>(kIntScratchBytes));

// Which sides have group scales.
enum class Scales { weights, tokens, both };

// Sums of one or two groups of a unit that wait to be folded.
struct Folding {
  const std::int32_t* sums = nullptr;  // [groups][kUnitNumbers]
  float* folded = nullptr;             // [kUnitNumbers]
  std::int64_t token[2] = {0, 0};      // first of each tile
  int output = 0;
  std::int64_t group = 0;  // first
  int groups = 0;          // 0: nothing waits
};

inline __attribute__((always_inline)) __m512 group_scale(const IntPanel& panel, std::int64_t group,
                                                         int output) {
  const std::uint16_t* scales = panel.group_scales + group * 64 + output;
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(panel.scale_mul));
}

// What a group's sum of products lacks for 16 outputs: signed weights have inputs of q + 128, so
// -128 * the weights' sum; unsigned weights a zero point, which a token's sum multiplies.
template <Signs kSigns>
inline __attribute__((always_inline)) __m512i group_offset(const IntPanel& panel,
                                                           std::int64_t group, int output) {
  if constexpr (kSigns == Signs::weight_unsigned) return zero_points(panel, group, output);
  if constexpr (kSigns == Signs::none_unsigned) return _mm512_setzero_si512();
  const std::int16_t* sums = panel.group_sums + group * 64 + output;
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
  return start_value(_mm512_cvtepi16_epi32(half));
}

// f = fma(float(c), weight scale * token scale, f) for rows [row, row + rows) of a unit, which lie
// in one tile.
template <Signs kSigns, Scales kScales, int G>
inline __attribute__((always_inline)) void fold_groups(const IntPanel& panel, const Folding& job,
                                                       std::int64_t row, std::int64_t rows) {
  __m512 by_weight[G][2];
  __m512i offset[G][2];
#pragma GCC unroll 2
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      if constexpr (kScales != Scales::tokens) {
        by_weight[g][j] = group_scale(panel, job.group + g, job.output + 16 * j);
      }
      offset[g][j] = group_offset<kSigns>(panel, job.group + g, job.output + 16 * j);
    }
  }
  const std::int64_t token = job.token[row / kTileTokens] + row % kTileTokens;
  const std::int32_t* sums = job.sums + row * kUnitOutputs;
  float* folded = job.folded + row * kUnitOutputs;
  for (std::int64_t t = token; t < token + rows;
       ++t, sums += kUnitOutputs, folded += kUnitOutputs) {
    __m512 f[2] = {_mm512_load_ps(folded), _mm512_load_ps(folded + 16)};
#pragma GCC unroll 2
    for (int g = 0; g < G; ++g) {
      __m512 by_token;
      if constexpr (kScales != Scales::weights) {
        by_token = _mm512_set1_ps(panel.token_scales[t * panel.token_scale_stride +
                                                     (job.group + g) / panel.groups_a_token_scale]);
      }
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        __m512i sum = _mm512_load_si512(sums + g * kUnitNumbers + 16 * j);
        if constexpr (kSigns == Signs::input_unsigned) sum = _mm512_add_epi32(sum, offset[g][j]);
        if constexpr (kSigns == Signs::weight_unsigned) {
          // A zero point lies in the lower half of its lane, so this multiplies by the lower half
          // of the token's sum, at most 128 * 127.
          const int inputs = panel.token_sums[t * panel.token_sum_stride + job.group + g];
          sum = _mm512_add_epi32(sum, _mm512_madd_epi16(offset[g][j], _mm512_set1_epi32(-inputs)));
        }
        __m512 scale;
        if constexpr (kScales == Scales::weights) scale = by_weight[g][j];
        if constexpr (kScales == Scales::tokens) scale = by_token;
        if constexpr (kScales == Scales::both) scale = _mm512_mul_ps(by_weight[g][j], by_token);
        f[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, f[j]);
      }
    }
    _mm512_store_ps(folded, f[0]);
    _mm512_store_ps(folded + 16, f[1]);
  }
}

template <Signs kSigns, Scales kScales>
inline __attribute__((always_inline)) void fold(const IntPanel& panel, const Folding& job,
                                                std::int64_t row, std::int64_t rows) {
  for (const std::int64_t end = row + rows; row < end; row += kTileTokens) {
    const std::int64_t count = end - row < kTileTokens ? end - row : kTileTokens;
    if (job.groups == 2) {
      fold_groups<kSigns, kScales, 2>(panel, job, row, count);
    } else if (job.groups == 1) {
      fold_groups<kSigns, kScales, 1>(panel, job, row, count);
    }
  }
}

// One or two groups of a panel's columns.
struct Piece {
  const std::uint8_t* codes = nullptr;  // bytes of the first column, one code each
  std::int64_t group = 0;               // first
  int groups = 0;
  const std::uint8_t* next = nullptr;  // bytes that the next piece is made from
  std::int64_t next_bytes = 0;
};

// Multiplies a piece for all units of a block; `waiting` is folded meanwhile, and holds what is
// left to be folded afterwards.
template <Signs kSigns, Scales kScales>
void multiply_piece(const IntPanel& panel, const TokenBlock& block, const Piece& piece,
                    Folding& waiting) {
  const std::int64_t stride = panel.input_stride;
  const std::int64_t step = panel.group < 64 ? panel.group : 64;
  const std::int64_t steps = panel.group / step;
  const std::int64_t rows = kUnitTokens / (piece.groups * steps);
  auto* folded = reinterpret_cast<float*>(panel.scratch);
  auto* const sums = reinterpret_cast<std::int32_t*>(panel.scratch + kBlockBytes);
  FetchAhead ahead(piece.next, piece.next_bytes, block.units() * 2 * piece.groups * steps);
  for (std::int64_t unit = 0; unit < block.units(); ++unit) {
    for (int half = 0; half < 2; ++half, folded += kUnitNumbers) {
      Folding done;
      done.sums = waiting.sums == sums ? sums + kFoldGroups * kUnitNumbers : sums;
      done.folded = folded;
      done.token[0] = block.first(unit, 0);
      done.token[1] = block.first(unit, 1);
      done.output = half * 32;
      done.group = piece.group;
      done.groups = piece.groups;
      const std::uint8_t* inputs = panel.inputs + piece.group * panel.group;
      const std::uint8_t* x0 = inputs + done.token[0] * stride;
      const std::uint8_t* x1 = inputs + done.token[1] * stride;
      const std::uint8_t* w = piece.codes + half * 128;
      std::int64_t row = 0;
      for (int g = 0; g < piece.groups; ++g) {
        clear_sums();
        for (std::int64_t s = 0; s < steps; ++s, x0 += step, x1 += step, w += step * 64) {
          load_tiles(x0, x1, stride, w);
          multiply_tiles<kSigns>();
          ahead.step();
          fold<kSigns, kScales>(panel, waiting, row, rows);
          row += rows;
        }
        store_sums(const_cast<std::int32_t*>(done.sums) + g * kUnitNumbers);
      }
      waiting = done;
    }
  }
}

// A whole panel. codes_of(first column, columns, piece) fills in the piece's codes.
template <Signs kSigns, Scales kScales, class CodesOf>
void run_scaled(const IntPanel& panel, CodesOf codes_of) {
  const std::int64_t groups = (panel.columns + panel.group - 1) / panel.group;
  auto* const folded = reinterpret_cast<float*>(panel.scratch);
  const Tiles tiles(panel.group < 64 ? panel.group : 64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    for (std::int64_t i = 0; i < block.units() * 2 * kUnitNumbers; i += 16) {
      _mm512_store_ps(folded + i, _mm512_setzero_ps());
    }
    Folding waiting;
    for (std::int64_t group = 0; group < groups; group += kFoldGroups) {
      Piece piece;
      piece.group = group;
      piece.groups = groups - group < kFoldGroups ? 1 : kFoldGroups;
      codes_of(group * panel.group, piece.groups * panel.group, piece);
      multiply_piece<kSigns, kScales>(panel, block, piece, waiting);
    }
    fold<kSigns, kScales>(panel, waiting, 0, kUnitTokens);
    const float* f = folded;
    for (std::int64_t unit = 0; unit < block.units(); ++unit) {
      for (int output = 0; output < 64; output += kUnitOutputs) {
        for (int tile = 0; tile < 2; ++tile) {
          for (std::int64_t t = block.first(unit, tile), row = 0; row < kTileTokens; ++row, ++t) {
            for (int j = 0; j < kUnitOutputs; j += 16, f += 16) {
              finish(panel, t, output + j, _mm512_load_ps(f));
            }
          }
        }
      }
    }
  });
}

template <Signs kSigns, class CodesOf>
void run_groups(const IntPanel& panel, CodesOf codes_of) {
  if (panel.groups_a_token_scale == 0) {
    run_scaled<kSigns, Scales::weights>(panel, codes_of);
  } else if (panel.group_scales == nullptr) {
    run_scaled<kSigns, Scales::tokens>(panel, codes_of);
  } else {
    run_scaled<kSigns, Scales::both>(panel, codes_of);
  }
}

}  // namespace
}  // namespace leq::cpu
