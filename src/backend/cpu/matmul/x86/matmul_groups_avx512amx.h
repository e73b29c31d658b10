// Matmuls with groups on AMX. While the tiles multiply, the int32 sums of a group are stored in the
// first step of the next group and folded into f32 sums in the first step of the group after it.
#pragma once

#include <cstring>

#include "backend/cpu/matmul/x86/matmul_avx512amx.h"

namespace leq::cpu {
namespace {

// The sides that have group scales.
enum class Scales { weights, tokens, both };

constexpr std::int64_t kSmallestGroup = 32;
constexpr std::int64_t kKTileGroups = kKTileColumns / kSmallestGroup;
constexpr std::int64_t kKTileScales = kKTileGroups;  // most scales of a token

// Scales and offsets with which the groups of a K tile are folded, for each output of a panel.
struct alignas(64) KTileNumbers {
  float scales[kKTileGroups][64];
  std::int32_t offsets[kKTileGroups][64];
};

// Scratch of a block.
struct alignas(64) GroupScratch {
  float folded[kBlockTokens / kUnitTokens][2][kHalfNumbers];
  std::int32_t sums[kHalfNumbers];                    // sums of the group that is not folded yet
  KTileNumbers numbers[2];                            // of this K tile and of the preceding one
  float token_scales[2][kKTileScales][kBlockTokens];  // of these two K tiles
  std::uint8_t unpacked[kKTileColumns * 64];          // unpacked weights below 8 bits
};
static_assert(sizeof(GroupScratch) <= kIntScratchBytes);

// The destination of a group's folded sums of a half, and the numbers needed for folding.
struct Fold {
  float* folded = nullptr;        // [kHalfNumbers]; null: nothing to fold
  const float* scales = nullptr;  // [32], scales of the weights
  const std::int32_t* offsets = nullptr;
  // For the tokens of each tile: their scales in the group, and the first token's sum of inputs.
  const float* token_scales[2] = {nullptr, nullptr};
  const std::int32_t* token_sums[2] = {nullptr, nullptr};
};

// f = fma(float(c), weight scale * token scale, f) for one of a half's tiles of sums.
template <Signs kSigns, Scales kScales>
inline __attribute__((always_inline)) void fold_tile(const IntPanel& panel, const Fold& fold,
                                                     const std::int32_t* sums, int tile) {
  const __m512 by_weight = _mm512_load_ps(fold.scales + tile % 2 * 16);
  const __m512i offset = _mm512_load_si512(fold.offsets + tile % 2 * 16);
  const float* by_token = fold.token_scales[tile / 2];
  const std::int32_t* token_sums = fold.token_sums[tile / 2];
  // Read once, since the compiler must assume that the stores below change the panel.
  const std::int64_t sum_stride = panel.token_sum_stride;
  float* const folded = fold.folded + tile * kTileNumbers;
  sums += tile * kTileNumbers;
#pragma GCC unroll 16
  for (int row = 0; row < kTileTokens; ++row) {
    __m512i sum = _mm512_load_si512(sums + row * 16);
    if constexpr (kSigns == Signs::input_unsigned) sum = _mm512_add_epi32(sum, offset);
    if constexpr (kSigns == Signs::weight_unsigned) {
      // A negated zero point is in the lower half of its lane, whose upper half is 0, so that this
      // multiplies it by the lower half of the token's sum (at most 128 * 127).
      sum = _mm512_dpwssd_epi32(sum, offset, _mm512_set1_epi32(*token_sums));
      token_sums += sum_stride;
    }
    __m512 scale = by_weight;
    if constexpr (kScales != Scales::weights) {
      scale = _mm512_set1_ps(by_token[row]);
      if constexpr (kScales == Scales::both) scale = _mm512_mul_ps(by_weight, scale);
    }
    const __m512 f = _mm512_load_ps(folded + row * 16);
    _mm512_store_ps(folded + row * 16, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, f));
  }
}

// The last two groups: the sums of the older group are in memory, the sums of the newer in the
// tiles. Pointers are exchanged, because a copy would have to wait until all earlier tiles are
// stored.
struct Pipeline {
  Fold places[3];
  Fold* older = &places[0];
  Fold* newer = &places[1];
  Fold* now = &places[2];
};

template <Signs kSigns, Scales kScales>
void drain(const IntPanel& panel, const TokenBlock& block, const Pipeline& pipeline,
           std::int32_t* sums) {
  const auto fold = [&](const Fold& group) {
    if (group.folded == nullptr) return;
    for (int tile = 0; tile < 2 * block.tiles(); ++tile) {
      fold_tile<kSigns, kScales>(panel, group, sums, tile);
    }
  };
  fold(*pipeline.older);
  store_sums(sums);
  fold(*pipeline.newer);
}

// A range of groups of a panel's columns.
struct KTile {
  const std::uint8_t* codes = nullptr;  // byte codes at the first column
  std::int64_t group = 0;               // first group
  std::int64_t groups = 0;
  const std::uint8_t* next = nullptr;  // bytes from which the next K tile is made
  std::int64_t next_bytes = 0;
};

// Reads the scales of groups and the corrections of their sums. For signed weights (inputs q + 128)
// a correction is -128 * the weights' sum; for unsigned weights -zero point, times a token's sum.
template <Signs kSigns>
void read_numbers(const IntPanel& panel, const KTile& k_tile, KTileNumbers& numbers) {
  for (std::int64_t g = 0; g < k_tile.groups; ++g) {
    const std::int64_t group = k_tile.group + g;
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
        const __m512i zeros = zero_points(panel, group, output);
        _mm512_store_si512(numbers.offsets[g] + output,
                           _mm512_maskz_sub_epi16(0x55555555, _mm512_setzero_si512(), zeros));
      }
    }
  }
}

// Collects the scales of a block's tokens in a K tile contiguously. If they were read in place,
// from a line per token, they would evict other data from L1.
inline void read_token_scales(const IntPanel& panel, const TokenBlock& block, const KTile& k_tile,
                              float (&scales)[kKTileScales][kBlockTokens]) {
  const std::int64_t first = k_tile.group / panel.groups_a_token_scale;
  const std::int64_t last = (k_tile.group + k_tile.groups - 1) / panel.groups_a_token_scale;
  const std::int64_t stride = panel.token_scale_stride;
  const float* from = panel.token_scales + block.token * stride + first;
  std::int64_t token = 0;
  // Groups of 128 columns: two scales per token.
  for (; first + 1 == last && token + 4 <= block.tokens; token += 4, from += 4 * stride) {
    const auto pair = [&](std::int64_t row) {
      return _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(from + row * stride)));
    };
    const __m128 two = _mm_movelh_ps(pair(0), pair(1)), more = _mm_movelh_ps(pair(2), pair(3));
    _mm_storeu_ps(scales[0] + token, _mm_shuffle_ps(two, more, _MM_SHUFFLE(2, 0, 2, 0)));
    _mm_storeu_ps(scales[1] + token, _mm_shuffle_ps(two, more, _MM_SHUFFLE(3, 1, 3, 1)));
  }
  for (; token < block.tokens; ++token, from += stride) {
    for (std::int64_t i = first; i <= last; ++i) scales[i - first][token] = from[i - first];
  }
}

// Multiplies a K tile of groups of S steps for all units of a block, with T tiles of tokens each.
template <Signs kSigns, Scales kScales, int S, int T>
void multiply_k_tile(const IntPanel& panel, const TokenBlock& block, const KTile& k_tile,
                     Pipeline& pipeline) {
  auto& scratch = *reinterpret_cast<GroupScratch*>(panel.scratch);
  std::int32_t* const sums = scratch.sums;
  const std::int64_t place = k_tile.group / (kKTileColumns / panel.group) % 2;
  KTileNumbers& numbers = scratch.numbers[place];
  read_numbers<kSigns>(panel, k_tile, numbers);
  auto& token_scales = scratch.token_scales[place];
  if constexpr (kScales != Scales::weights) read_token_scales(panel, block, k_tile, token_scales);
  const std::int64_t stride = panel.input_stride;
  const std::int64_t step = panel.group / S;
  FetchAhead ahead(k_tile.next, k_tile.next_bytes, block.halves() * k_tile.groups * S);
  for (std::int64_t half = 0; half < block.halves(); ++half) {
    const std::int64_t token[2] = {block.first(half / 2, 0), block.first(half / 2, 1)};
    const std::uint8_t* inputs = panel.inputs + k_tile.group * panel.group;
    const std::uint8_t* x0 = inputs + token[0] * stride;
    const std::uint8_t* x1 = inputs + token[1] * stride;
    const std::uint8_t* w = k_tile.codes + half % 2 * 128;
    const std::int64_t output = half % 2 * kUnitOutputs;
    float* const folded = scratch.folded[half / 2][half % 2];
    if (k_tile.group == 0) std::memset(folded, 0, 2 * T * kTileNumbers * sizeof(float));
    for (std::int64_t g = 0; g < k_tile.groups; ++g) {
      Fold& now = *pipeline.now;
      now.folded = folded;
      now.scales = numbers.scales[g] + output;
      now.offsets = numbers.offsets[g] + output;
      for (int tile = 0; tile < 2; ++tile) {
        if constexpr (kScales != Scales::weights) {
          now.token_scales[tile] =
              token_scales[g / panel.groups_a_token_scale] + (token[tile] - block.token);
        }
        if constexpr (kSigns == Signs::weight_unsigned) {
          now.token_sums[tile] =
              panel.token_sums + token[tile] * panel.token_sum_stride + k_tile.group + g;
        }
      }
      const Fold& older = *pipeline.older;
      ahead.step();
      load_tiles<T>(x0, x1, stride, w);
      store_and_begin<kSigns, T>(
          sums, [&](int tile) __attribute__((always_inline)) {
            if (older.folded != nullptr) fold_tile<kSigns, kScales>(panel, older, sums, tile);
          });
      x0 += step, x1 += step, w += step * 64;
#pragma GCC unroll 2
      for (int i = 1; i < S; ++i, x0 += step, x1 += step, w += step * 64) {
        ahead.step();
        load_tiles<T>(x0, x1, stride, w);
        multiply_step<kSigns, T>();
      }
      pipeline.now = pipeline.older;
      pipeline.older = pipeline.newer;
      pipeline.newer = &now;
    }
  }
}

// Multiplies a whole panel. codes_of(first column, columns, k_tile) sets the K tile's codes.
template <Signs kSigns, Scales kScales, class CodesOf>
void run_scaled(const IntPanel& panel, CodesOf codes_of) {
  const std::int64_t groups = (panel.columns + panel.group - 1) / panel.group;
  const std::int64_t most = kKTileColumns / panel.group;
  auto& scratch = *reinterpret_cast<GroupScratch*>(panel.scratch);
  FinishNumbers finish;
  read_finish_numbers(panel, finish);
  const Tiles tiles(panel.group < 64 ? panel.group : 64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    Pipeline pipeline;
    for (std::int64_t group = 0; group < groups; group += most) {
      KTile k_tile;
      k_tile.group = group;
      k_tile.groups = groups - group < most ? groups - group : most;
      codes_of(group * panel.group, k_tile.groups * panel.group, k_tile);
      using Multiply = void (*)(const IntPanel&, const TokenBlock&, const KTile&, Pipeline&);
      constexpr Multiply kMultiply[2][2] = {
          {multiply_k_tile<kSigns, kScales, 1, 1>, multiply_k_tile<kSigns, kScales, 1, 2>},
          {multiply_k_tile<kSigns, kScales, 2, 1>, multiply_k_tile<kSigns, kScales, 2, 2>}};
      kMultiply[panel.group > 64][block.tiles() - 1](panel, block, k_tile, pipeline);
    }
    drain<kSigns, kScales>(panel, block, pipeline, scratch.sums);
    const float* folded = scratch.folded[0][0];
    for (std::int64_t half = 0; half < block.halves(); ++half, folded += kHalfNumbers) {
      finish_half(
          panel, finish, block,
          half, [&](std::int64_t, int, std::int64_t at) __attribute__((always_inline)) {
            return _mm512_load_ps(folded + at);
          });
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
