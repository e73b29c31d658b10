// Codes under superblock scales with AMX. A code times its sub-scale is stored as two bytes, so
// that tiles sum a whole span: for q4_k the code times the lower and the upper four bits of the
// sub-scale, low + 16 * high; for q5_k and q6_k two digits of the product, low + 256 * high. A
// unit is 32 tokens x 16 outputs, with low and high bytes in place of the 32 outputs of
// amx_tiles.h. As in avx512amx.cpp, a span's sums are stored in the first step of the next span and
// folded to f32 in the first step of the one after it.
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/amx_tiles.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/super_codes.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kKTileSpan = 128;  // columns multiplied by all tokens of a block at a time
constexpr std::int64_t kSuperColumns = 256;  // columns whose numbers are read at a time
constexpr std::int64_t kMaxSpans = kSuperColumns / kSubColumns;
constexpr std::int64_t kUnitNumbers = 2 * kTileNumbers;  // numbers f of 32 tokens x 16 outputs
constexpr int kQuarters = 4;                             // quarters of a panel, 16 outputs each

// Numbers with which the spans of a superblock, two K tiles, are folded. Sums of inputs, and
// minima, are pairs of 16-bit numbers, for two sub-blocks; minima are 0 outside their span.
struct alignas(64) SuperNumbers {
  float d[64];
  float dmin[64];
  std::int32_t minima[kMaxSpans][2][64];
  float token_scales[kMaxSpans][kBlockTokens];
  std::int32_t input_sums[2][kBlockTokens][2];  // of each K tile
};

struct alignas(64) Scratch {
  float folded[kBlockTokens / kUnitTokens][kQuarters][kUnitNumbers];
  std::int32_t sums[kHalfNumbers];  // sums of the span that is not folded yet
  SuperNumbers numbers[2];          // of this superblock and of the preceding one
  // Laid out as two panels: low and high bytes of outputs 0 to 31, then those of outputs 32 to 63.
  std::uint8_t products[2][kKTileSpan * 64];
};
static_assert(sizeof(Scratch) <= kSuperScratchBytes);

// The destination of a span's folded sums, and the numbers needed for folding.
struct Fold {
  float* folded = nullptr;  // [kUnitNumbers]; null: nothing to fold
  const SuperNumbers* numbers = nullptr;
  std::int64_t span = 0;  // index of the span in the superblock
  std::int64_t half = 0;  // index of the K tile in the superblock
  int output = 0;
  std::int64_t token[2] = {0, 0};  // first token of each tile, within the block
};

// Folds sixteen tokens x 16 outputs of a span.
template <int kBits>
inline __attribute__((always_inline)) void fold_tokens(const Fold& fold, const std::int32_t* sums,
                                                       int tile) {
  const SuperNumbers& numbers = *fold.numbers;
  const __m512 d = _mm512_load_ps(numbers.d + fold.output);
  const __m512 dmin = _mm512_load_ps(numbers.dmin + fold.output);
  const __m512i minima0 = _mm512_load_si512(numbers.minima[fold.span][0] + fold.output);
  const __m512i minima1 = _mm512_load_si512(numbers.minima[fold.span][1] + fold.output);
  const float* by_token = numbers.token_scales[fold.span] + fold.token[tile];
  const std::int32_t(*inputs)[2] = numbers.input_sums[fold.half] + fold.token[tile];
  float* const folded = fold.folded + tile * kTileNumbers;
  sums += tile * 2 * kTileNumbers;
#pragma GCC unroll 16
  for (int row = 0; row < kTileTokens; ++row) {
    const __m512i low = _mm512_load_si512(sums + row * 16);
    const __m512i high = _mm512_load_si512(sums + kTileNumbers + row * 16);
    const __m512i a = _mm512_add_epi32(low, _mm512_slli_epi32(high, kBits == 4 ? 4 : 8));
    const __m512 scale = _mm512_set1_ps(by_token[row]);
    __m512 f = _mm512_load_ps(folded + row * 16);
    f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(a), _mm512_mul_ps(d, scale), f);
    if constexpr (kBits != 6) {
      __m512i b = _mm512_madd_epi16(minima0, _mm512_set1_epi32(inputs[row][0]));
      b = _mm512_dpwssd_epi32(b, minima1, _mm512_set1_epi32(inputs[row][1]));
      f = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(b), _mm512_mul_ps(dmin, scale), f);
    }
    _mm512_store_ps(folded + row * 16, f);
  }
}

// The last two spans: the older one's sums are in memory, the newer one's sums in the tiles.
struct Pipeline {
  Fold places[3];
  Fold* older = &places[0];
  Fold* newer = &places[1];
  Fold* now = &places[2];

  void advance() {
    Fold* const free = older;
    older = newer, newer = now, now = free;
  }
};

template <int kBits>
void drain(const TokenBlock& block, const Pipeline& pipeline, std::int32_t* sums) {
  const auto fold = [&](const Fold& span) {
    if (span.folded == nullptr) return;
    for (int tile = 0; tile < block.tiles(); ++tile) fold_tokens<kBits>(span, sums, tile);
  };
  fold(*pipeline.older);
  store_sums(sums);
  fold(*pipeline.newer);
}

// The spans of a panel's columns in a K tile of kKTileSpan columns.
struct KTile {
  std::int64_t column = 0;
  std::int64_t spans = 0;
};

// --- code times sub-scale ---

// Stores products of even and odd columns, 16 bits each, as low bytes and high bytes.
inline __attribute__((always_inline)) void store_products(__m512i even, __m512i odd,
                                                          std::uint8_t* to) {
  const __m512i upper = _mm512_set1_epi16(static_cast<short>(0xff00));
  // (a & mask) | b, and (a & ~mask) | b.
  const __m512i low = _mm512_ternarylogic_epi32(even, upper, _mm512_slli_epi16(odd, 8), 0xba);
  const __m512i half = _mm512_set1_epi16(128);  // because low bytes are signed
  const __m512i next = _mm512_srli_epi16(_mm512_add_epi16(even, half), 8);
  const __m512i high = _mm512_ternarylogic_epi32(_mm512_add_epi16(odd, half), upper, next, 0xea);
  _mm512_store_si512(to, low);
  _mm512_store_si512(to + 64, high);
}

// Loads the sub-scales of 16 outputs into both halves of each lane.
template <bool kMinima>
inline __m512i sub_scales_of(const SuperPanel& panel, std::int64_t block, int output) {
  constexpr std::int64_t kNumbers = kMinima ? 2 : 1;
  const std::uint8_t* from = panel.sub_scales + block * kNumbers * 64 + output;
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m512i scales = kMinima ? _mm512_cvtepu8_epi32(bytes) : _mm512_cvtepi8_epi32(bytes);
  return _mm512_or_si512(_mm512_slli_epi32(scales, 16),
                         _mm512_and_si512(scales, _mm512_set1_epi32(0xffff)));
}

template <int kBits, int kQuad>
inline __attribute__((always_inline)) void multiply_quad(const SuperPanel& panel, std::int64_t k,
                                                         int output, __m512i scales,
                                                         std::uint8_t* to) {
  const __m512i codes = quad_codes<Lanes512, kBits, kQuad>(panel, k, output);
  to += kQuad * 256;
  if constexpr (kBits == 6) {
    const __m512i zero = _mm512_set1_epi16(32);
    const __m512i even = _mm512_sub_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(255)), zero);
    const __m512i odd = _mm512_sub_epi16(_mm512_srli_epi16(codes, 8), zero);
    store_products(_mm512_mullo_epi16(even, scales), _mm512_mullo_epi16(odd, scales), to);
  } else if constexpr (kBits == 5) {
    const __m512i bytes = _mm512_set1_epi16(255);
    const __m512i even = _mm512_mullo_epi16(_mm512_and_si512(codes, bytes), scales);
    const __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(codes, 8), scales);
    // (a & mask) | b
    const __m512i low = _mm512_ternarylogic_epi32(even, bytes, _mm512_slli_epi16(odd, 8), 0xea);
    const __m512i high = _mm512_ternarylogic_epi32(odd, _mm512_slli_epi16(bytes, 8),
                                                   _mm512_srli_epi16(even, 8), 0xea);
    _mm512_store_si512(to, low);
    _mm512_store_si512(to + 64, high);
  } else {
    // A code times four bits is at most 15 * 15, so that one product of 16-bit lanes multiplies two
    // bytes.
    const __m512i low = _mm512_and_si512(scales, _mm512_set1_epi16(15));
    _mm512_store_si512(to, _mm512_mullo_epi16(codes, low));
    _mm512_store_si512(to + 64, _mm512_mullo_epi16(codes, _mm512_srli_epi16(scales, 4)));
  }
}

template <int kBits>
void multiply_codes(const SuperPanel& panel, std::int64_t column, Scratch& scratch) {
  constexpr bool kMinima = kBits != 6;
  for (int output = 0; output < 64; output += 16) {
    std::uint8_t* to = scratch.products[output / 32] + output % 32 / 16 * 128;
    for (std::int64_t k = column; k < column + kKTileSpan; k += 32, to += 8 * 256) {
      const __m512i first = sub_scales_of<kMinima>(panel, kMinima ? k / 32 : k / 16, output);
      const __m512i second = kMinima ? first : sub_scales_of<kMinima>(panel, k / 16 + 1, output);
      multiply_quad<kBits, 0>(panel, k, output, first, to);
      multiply_quad<kBits, 1>(panel, k, output, first, to);
      multiply_quad<kBits, 2>(panel, k, output, first, to);
      multiply_quad<kBits, 3>(panel, k, output, first, to);
      multiply_quad<kBits, 4>(panel, k, output, second, to);
      multiply_quad<kBits, 5>(panel, k, output, second, to);
      multiply_quad<kBits, 6>(panel, k, output, second, to);
      multiply_quad<kBits, 7>(panel, k, output, second, to);
    }
  }
  stored_for_tiles(scratch.products);
}

// --- numbers of a K tile ---

// Reads the numbers of the superblock that begins at `column`. Numbers of tokens are a line per
// token apart, so that each visit takes all that are read from it.
template <bool kMinima>
void read_super_numbers(const SuperPanel& panel, const TokenBlock& block, std::int64_t column,
                        SuperNumbers& numbers) {
  const std::uint16_t* super = panel.super_scales + column / 256 * (kMinima ? 2 : 1) * 64;
  const auto floats = [](const std::uint16_t* from, float* to) {
    for (int output = 0; output < 64; output += 16) {
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + output));
      _mm512_store_ps(to + output, _mm512_cvtph_ps(half));
    }
  };
  const std::int64_t left = (panel.columns - column + kSuperPad - 1) / kSuperPad * kSuperPad;
  const std::int64_t columns = left < kSuperColumns ? left : kSuperColumns;
  floats(super, numbers.d);
  if constexpr (kMinima) {
    floats(super + 64, numbers.dmin);
    __builtin_memset(numbers.minima, 0, sizeof numbers.minima);
    const std::uint8_t* sub = panel.sub_scales + column / kSubColumns * 128 + 64;
    for (std::int64_t k = 0; k < columns; k += kSubColumns, sub += 128) {
      std::int32_t* to = numbers.minima[k / panel.span][k / 64 % 2];
      for (int output = 0; output < 64; output += 16) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sub + output));
        const __m512i minima = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), k % 64 == 0 ? 0 : 16);
        _mm512_store_si512(to + output, _mm512_or_si512(minima, _mm512_load_si512(to + output)));
      }
    }
  }
  const std::int64_t spans = columns / panel.span;
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    const float* scales = panel.token_scales + (block.token + t) * panel.token_scale_stride +
                          (panel.scale_by_span ? column / panel.span : 0);
    for (std::int64_t span = 0; span < spans; ++span) {
      numbers.token_scales[span][t] = scales[panel.scale_by_span ? span : 0];
    }
    if constexpr (kMinima) {
      const std::int32_t* sums =
          panel.token_sums + (block.token + t) * panel.token_sum_stride + column / kSubColumns;
      for (std::int64_t half = 0; half < columns / kKTileSpan; ++half) {
        const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sums + 4 * half));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(numbers.input_sums[half][t]),
                         _mm_packs_epi32(four, four));
      }
    }
  }
}

// --- products of tiles ---

// Multiplies a K tile for all units of a block, with S steps per span and T tiles of tokens.
template <int kBits, int S, int T>
void multiply_k_tile(const SuperPanel& panel, const TokenBlock& block, const KTile& k_tile,
                     const SuperNumbers& numbers, Pipeline& pipeline) {
  constexpr Signs kSigns = kBits == 6 ? Signs::none_unsigned : Signs::weight_unsigned;
  auto& scratch = *reinterpret_cast<Scratch*>(panel.scratch);
  std::int32_t* const sums = scratch.sums;
  const std::int64_t stride = panel.input_stride, step = panel.span / S;
  for (std::int64_t at = 0; at < block.units() * kQuarters; ++at) {
    const std::int64_t unit = at / kQuarters, quarter = at % kQuarters;
    const std::int64_t token[2] = {block.first(unit, 0), block.first(unit, 1)};
    const std::uint8_t* x0 = panel.inputs + token[0] * stride + k_tile.column;
    const std::uint8_t* x1 = panel.inputs + token[1] * stride + k_tile.column;
    const std::uint8_t* w = scratch.products[quarter / 2] + quarter % 2 * 128;
    for (std::int64_t span = 0; span < k_tile.spans; ++span) {
      *pipeline.now = {.folded = scratch.folded[unit][quarter],
                       .numbers = &numbers,
                       .span = k_tile.column % kSuperColumns / panel.span + span,
                       .half = k_tile.column % kSuperColumns / kKTileSpan,
                       .output = static_cast<int>(quarter) * 16,
                       .token = {token[0] - block.token, token[1] - block.token}};
      const Fold& older = *pipeline.older;
      load_tiles<T>(x0, x1, stride, w);
      store_and_begin<kSigns, T>(
          sums, [&](int tile) __attribute__((always_inline)) {
            if (tile % 2 == 0 && older.folded != nullptr) {
              fold_tokens<kBits>(older, sums, tile / 2);
            }
          });
      x0 += step, x1 += step, w += step * 64;
#pragma GCC unroll 2
      for (int i = 1; i < S; ++i, x0 += step, x1 += step, w += step * 64) {
        load_tiles<T>(x0, x1, stride, w);
        multiply_step<kSigns, T>();
      }
      pipeline.advance();
    }
  }
}

void write_outputs(const SuperPanel& panel, const TokenBlock& block) {
  auto& scratch = *reinterpret_cast<Scratch*>(panel.scratch);
  for (std::int64_t at = 0; at < block.units() * kQuarters; ++at) {
    const std::int64_t unit = at / kQuarters, output = at % kQuarters * 16;
    for (int tile = 0; tile < block.tiles(); ++tile) {
      float* y = panel.y + block.first(unit, tile) * panel.y_stride + output;
      const float* f = scratch.folded[unit][at % kQuarters] + tile * kTileNumbers;
      for (int row = 0; row < kTileTokens; ++row, y += panel.y_stride, f += 16) {
        __m512 value = _mm512_load_ps(f);
        if (panel.bias != nullptr) {
          value = _mm512_add_ps(value, _mm512_loadu_ps(panel.bias + output));
        }
        _mm512_storeu_ps(y, value);
      }
    }
  }
}

template <int kBits>
void run(const SuperPanel& panel) {
  constexpr bool kMinima = kBits != 6;
  using Multiply =
      void (*)(const SuperPanel&, const TokenBlock&, const KTile&, const SuperNumbers&, Pipeline&);
  constexpr Multiply kMultiply[2][2] = {
      {multiply_k_tile<kBits, 1, 1>, multiply_k_tile<kBits, 1, 2>},
      {multiply_k_tile<kBits, 2, 1>, multiply_k_tile<kBits, 2, 2>}};
  auto& scratch = *reinterpret_cast<Scratch*>(panel.scratch);
  const std::int64_t spans = (panel.columns + panel.span - 1) / panel.span;
  const std::int64_t most = kKTileSpan / panel.span;
  const Tiles tiles(panel.span < 64 ? panel.span : 64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    __builtin_memset(scratch.folded, 0,
                     static_cast<std::size_t>(block.units()) * sizeof scratch.folded[0]);
    Pipeline pipeline;
    for (std::int64_t span = 0; span < spans; span += most) {
      const KTile k_tile = {span * panel.span, spans - span < most ? spans - span : most};
      SuperNumbers& numbers = scratch.numbers[k_tile.column / kSuperColumns % 2];
      multiply_codes<kBits>(panel, k_tile.column, scratch);
      if (k_tile.column % kSuperColumns == 0) {
        read_super_numbers<kMinima>(panel, block, k_tile.column, numbers);
      }
      kMultiply[panel.span > 64][block.tiles() - 1](panel, block, k_tile, numbers, pipeline);
    }
    drain<kBits>(block, pipeline, scratch.sums);
    write_outputs(panel, block);
  });
}

}  // namespace

void super_avx512amx(const SuperPanel& panel) noexcept {
  if (panel.tokens < kTileTokens) return level_avx512vnni().matmul->super(panel);
  if (panel.bits == 4) return run<4>(panel);
  if (panel.bits == 5) return run<5>(panel);
  run<6>(panel);
}

}  // namespace leq::cpu
