// Grouped matmuls with AMX: the int32 sums of one or two groups of a unit are stored, and folded
// into its f32 sums while the tiles multiply the next unit. A group's sums leave the tiles in the
// first step of the next group.
#pragma once

#include "backend/cpu/x86/matmul_avx512amx.h"

namespace leq::cpu {
namespace {

// Which sides have group scales.
enum class Scales { weights, tokens, both };

constexpr int kFoldGroups = 2;  // of a piece

// What the groups of a piece are folded with, for each of a panel's outputs.
struct alignas(64) PieceNumbers {
  float scales[kFoldGroups][64];
  std::int32_t offsets[kFoldGroups][64];
};

// Scratch of a block.
struct alignas(64) GroupScratch {
  float folded[kBlockTokens / kUnitTokens][2][kUnitNumbers];
  std::int32_t sums[2][kFoldGroups][kUnitNumbers];  // of this unit and of the one before
  PieceNumbers numbers[2];                          // of this piece and of the one before
  std::uint8_t unpacked[kPieceColumns * 64];        // for weights of fewer than 8 bits
};
static_assert(sizeof(GroupScratch) <= kIntScratchBytes);

// Sums of a unit that wait to be folded.
struct Waiting {
  int groups = 0;                // 0: nothing waits
  std::int32_t* sums = nullptr;  // [groups][kUnitNumbers]
  float* folded = nullptr;       // [kUnitNumbers]
  const PieceNumbers* numbers = nullptr;
  int output = 0;  // first
  // Of the first token of each tile: its scale in the first group, and the sum of its inputs there.
  const float* token_scales[2] = {nullptr, nullptr};
  const std::int32_t* token_sums[2] = {nullptr, nullptr};
  std::int64_t second_scale = 0;  // from a token's scale in the first group to that in the second
};

// f = fma(float(c), weight scale * token scale, f) for R rows of a unit, all in one tile.
template <Signs kSigns, Scales kScales, int G, int R>
inline __attribute__((always_inline)) void fold_rows(const IntPanel& panel, const Waiting& waiting,
                                                     int row) {
  __m512 by_weight[G][2];
  __m512i offset[G][2];
#pragma GCC unroll 4
  for (int i = 0; i < 2 * G; ++i) {
    const int output = waiting.output + i % 2 * 16;
    by_weight[i / 2][i % 2] = _mm512_load_ps(waiting.numbers->scales[i / 2] + output);
    offset[i / 2][i % 2] = _mm512_load_si512(waiting.numbers->offsets[i / 2] + output);
  }
  const std::int32_t* sums = waiting.sums + row * kUnitOutputs;
  float* folded = waiting.folded + row * kUnitOutputs;
  const int tile = row / static_cast<int>(kTileTokens);
  const std::int64_t token = row % kTileTokens;
  const float* token_scales = waiting.token_scales[tile];
  const std::int32_t* token_sums = waiting.token_sums[tile];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    __m512 f[2] = {_mm512_load_ps(folded), _mm512_load_ps(folded + 16)};
#pragma GCC unroll 4
    for (int i = 0; i < 2 * G; ++i) {
      const int g = i / 2;
      const int j = i % 2;
      __m512i sum = _mm512_load_si512(sums + g * kUnitNumbers + 16 * j);
      if constexpr (kSigns == Signs::input_unsigned) sum = _mm512_add_epi32(sum, offset[g][j]);
      if constexpr (kSigns == Signs::weight_unsigned) {
        // A zero point lies in the lower half of its lane, so this multiplies by the lower half of
        // the token's sum, at most 128 * 127.
        const int inputs = token_sums[(token + r) * panel.token_sum_stride + g];
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(offset[g][j], _mm512_set1_epi32(-inputs)));
      }
      __m512 scale = by_weight[g][j];
      if constexpr (kScales != Scales::weights) {
        const std::int64_t at = (token + r) * panel.token_scale_stride;
        const __m512 by_token =
            _mm512_set1_ps(token_scales[at + (g == 0 ? 0 : waiting.second_scale)]);
        scale = kScales == Scales::both ? _mm512_mul_ps(scale, by_token) : by_token;
      }
      f[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, f[j]);
    }
    _mm512_store_ps(folded, f[0]);
    _mm512_store_ps(folded + 16, f[1]);
    sums += kUnitOutputs;
    folded += kUnitOutputs;
  }
}

// Rows [row, kUnitTokens).
template <Signs kSigns, Scales kScales>
void fold_rest(const IntPanel& panel, const Waiting& waiting, int row) {
  for (; row < kUnitTokens; row += 4) {
    if (waiting.groups == 1) fold_rows<kSigns, kScales, 1, 4>(panel, waiting, row);
    if (waiting.groups == 2) fold_rows<kSigns, kScales, 2, 4>(panel, waiting, row);
  }
}

// The last two units: sums of the newer one's last group are in the tiles, and rows of the older
// one wait to be folded from `row` on. They change places by their pointers: a copy would have to
// wait until all tiles before it are stored.
struct Pipeline {
  Waiting places[3];
  Waiting* older = &places[0];
  Waiting* newer = &places[1];
  Waiting* now = &places[2];
  int row = 0;
};

template <Signs kSigns, Scales kScales>
void drain(const IntPanel& panel, Pipeline& pipeline) {
  Waiting& newer = *pipeline.newer;
  fold_rest<kSigns, kScales>(panel, *pipeline.older, pipeline.row);
  if (newer.groups > 0) store_sums(newer.sums + (newer.groups - 1) * kUnitNumbers);
  fold_rest<kSigns, kScales>(panel, newer, 0);
  pipeline.older->groups = newer.groups = 0;
}

// One or two groups of a panel's columns.
struct Piece {
  const std::uint8_t* codes = nullptr;  // bytes of the first column, one code each
  std::int64_t group = 0;               // first
  int groups = 0;
  const std::uint8_t* next = nullptr;  // bytes that the next piece is made from
  std::int64_t next_bytes = 0;
};

// Scales, and what a group's sum of products lacks: signed weights have inputs of q + 128, so -128
// * the weights' sum; unsigned weights a zero point, which a token's sum multiplies.
template <Signs kSigns>
void read_numbers(const IntPanel& panel, const Piece& piece, PieceNumbers& numbers) {
  for (int g = 0; g < piece.groups; ++g) {
    const std::int64_t group = piece.group + g;
    for (int output = 0; output < 64; output += 16) {
      if (panel.group_scales != nullptr) {
        const std::uint16_t* scales = panel.group_scales + group * 64 + output;
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
        _mm512_store_ps(numbers.scales[g] + output,
                        _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(panel.scale_mul)));
      }
      if constexpr (kSigns == Signs::input_unsigned) {
        const std::int16_t* sums = panel.group_sums + group * 64 + output;
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
        _mm512_store_si512(numbers.offsets[g] + output, start_value(_mm512_cvtepi16_epi32(half)));
      } else if constexpr (kSigns == Signs::weight_unsigned) {
        _mm512_store_si512(numbers.offsets[g] + output, zero_points(panel, group, output));
      }
    }
  }
}

// The R rows of a unit that are folded in one step.
template <Signs kSigns, Scales kScales, int G, int R>
inline __attribute__((always_inline)) void fold_share(const IntPanel& panel, const Waiting& waiting,
                                                      int share) {
  if (waiting.groups == 0) return;
  constexpr int kRows = R < 8 ? R : 8;
#pragma GCC unroll 4
  for (int row = 0; row < R; row += kRows) {
    fold_rows<kSigns, kScales, G, kRows>(panel, waiting, share * R + row);
  }
}

// Multiplies a piece of G groups of S steps for all units of a block.
template <Signs kSigns, Scales kScales, int G, int S>
void multiply_piece(const IntPanel& panel, const TokenBlock& block, const Piece& piece,
                    Pipeline& pipeline) {
  constexpr int kSteps = G * S;
  constexpr int kRows = static_cast<int>(kUnitTokens) / kSteps;
  if (pipeline.newer->groups != G) drain<kSigns, kScales>(panel, pipeline);
  auto& scratch = *reinterpret_cast<GroupScratch*>(panel.scratch);
  PieceNumbers& numbers = scratch.numbers[piece.group / kFoldGroups % 2];
  read_numbers<kSigns>(panel, piece, numbers);
  std::int64_t scale = 0, next_scale = 0;  // of a token, in the piece's first and second group
  if constexpr (kScales != Scales::weights) {
    scale = piece.group / panel.groups_a_token_scale;
    next_scale = (piece.group + 1) / panel.groups_a_token_scale;
  }
  const std::int64_t stride = panel.input_stride;
  const std::int64_t step = panel.group / S;
  FetchAhead ahead(piece.next, piece.next_bytes, block.units() * 2 * kSteps);
  for (std::int64_t unit = 0; unit < block.units(); ++unit) {
    const std::int64_t token[2] = {block.first(unit, 0), block.first(unit, 1)};
    const std::uint8_t* inputs = panel.inputs + piece.group * panel.group;
    for (int half = 0; half < 2; ++half) {
      Waiting& now = *pipeline.now;
      const Waiting& newer = *pipeline.newer;
      now.groups = G;
      now.output = half * static_cast<int>(kUnitOutputs);
      for (int tile = 0; tile < 2; ++tile) {
        now.token_scales[tile] =
            panel.token_scales + token[tile] * panel.token_scale_stride + scale;
        if constexpr (kSigns == Signs::weight_unsigned) {
          now.token_sums[tile] =
              panel.token_sums + token[tile] * panel.token_sum_stride + piece.group;
        }
      }
      now.second_scale = next_scale - scale;
      now.sums = scratch.sums[half][0];
      now.folded = scratch.folded[unit][half];
      now.numbers = &numbers;
      const std::uint8_t* x0 = inputs + token[0] * stride;
      const std::uint8_t* x1 = inputs + token[1] * stride;
      const std::uint8_t* w = piece.codes + half * 128;
      // What the very first step stores here is overwritten.
      std::int32_t* store = newer.groups == 0 ? now.sums : newer.sums + (G - 1) * kUnitNumbers;
#pragma GCC unroll 4
      for (int i = 0; i < kSteps; ++i, x0 += step, x1 += step, w += step * 64) {
        ahead.step();
        load_tiles(x0, x1, stride, w);
        if (i % S == 0) {
          store_and_begin<kSigns>(store);
          store = now.sums + i / S * kUnitNumbers;
        } else {
          multiply_step<kSigns>();
        }
        if (i == 0) {
          fold_share<kSigns, kScales, G, kRows>(panel, *pipeline.older, kSteps - 1);
        } else {
          fold_share<kSigns, kScales, G, kRows>(panel, newer, i - 1);
        }
      }
      pipeline.now = pipeline.older;
      pipeline.older = pipeline.newer;
      pipeline.newer = &now;
      pipeline.row = (kSteps - 1) * kRows;
    }
  }
}

// A whole panel. codes_of(first column, columns, piece) fills in the piece's codes.
template <Signs kSigns, Scales kScales, class CodesOf>
void run_scaled(const IntPanel& panel, CodesOf codes_of) {
  const std::int64_t groups = (panel.columns + panel.group - 1) / panel.group;
  auto& scratch = *reinterpret_cast<GroupScratch*>(panel.scratch);
  const Tiles tiles(panel.group < 64 ? panel.group : 64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    float* folded = scratch.folded[0][0];
    for (std::int64_t i = 0; i < block.units() * 2 * kUnitNumbers; i += 16) {
      _mm512_store_ps(folded + i, _mm512_setzero_ps());
    }
    Pipeline pipeline;
    for (std::int64_t group = 0; group < groups; group += kFoldGroups) {
      Piece piece;
      piece.group = group;
      piece.groups = groups - group < kFoldGroups ? 1 : kFoldGroups;
      codes_of(group * panel.group, piece.groups * panel.group, piece);
      const bool long_groups = panel.group > 64;
      if (piece.groups == 1) {
        (long_groups ? multiply_piece<kSigns, kScales, 1, 2>
                     : multiply_piece<kSigns, kScales, 1, 1>)(panel, block, piece, pipeline);
      } else {
        (long_groups ? multiply_piece<kSigns, kScales, 2, 2>
                     : multiply_piece<kSigns, kScales, 2, 1>)(panel, block, piece, pipeline);
      }
    }
    drain<kSigns, kScales>(panel, pipeline);
    for_each_row(block, [&](std::int64_t token, int output) {
      finish(panel, token, output, _mm512_load_ps(folded));
      folded += 16;
    });
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
