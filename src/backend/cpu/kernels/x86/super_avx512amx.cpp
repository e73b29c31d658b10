// Codes under superblock scales with AMX. A code times its sub-scale is stored as two bytes, so
// that tiles sum a whole span: for q4_k and q5_k the code times the lower and the upper three bits
// of the sub-scale, low + 8 * high; for q6_k two signed digits of the product, low + 256 * high. A
// unit is 32 tokens x 16 outputs, with low and high bytes in place of the 32 outputs of
// amx_tiles.h. As in avx512amx.cpp, a span's sums are stored in the first step of the next span and
// folded to f32 in the first step of the one after it.
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/amx_tiles.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/super_codes.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kSuperTileColumns = 512;  // columns whose products are in scratch, in L2
// Columns and units that are multiplied before the next ones: their products, inputs and f32 sums
// remain in L1.
constexpr std::int64_t kPartColumns = 128;
constexpr std::int64_t kPartUnits = 4;
constexpr std::int64_t kMaxSpans = kSuperTileColumns / kSubColumns;
constexpr std::int64_t kPairStride = kSuperTileColumns / 64 + 2;  // a span reads two pairs
constexpr std::int64_t kUnitNumbers = 2 * kTileNumbers;  // numbers f of 32 tokens x 16 outputs
constexpr int kQuarters = 4;                             // quarters of a panel, 16 outputs each

// Numbers with which the spans of a K tile are folded.
struct alignas(64) KTileNumbers {
  SpanNumbers<kSuperTileColumns> weights;
  float token_scales[kMaxSpans][kBlockTokens];
  std::int32_t pairs[kBlockTokens][kPairStride];
};

struct alignas(64) Scratch {
  float folded[kBlockTokens / kUnitTokens][kQuarters][kUnitNumbers];
  std::int32_t sums[kHalfNumbers];  // sums of the span that is not folded yet
  KTileNumbers numbers[2];          // of this K tile and of the preceding one
  // Laid out as two panels: low and high bytes of outputs 0 to 31, then those of outputs 32 to 63.
  std::uint8_t products[2][kSuperTileColumns * 64];
};
static_assert(sizeof(Scratch) <= kSuperScratchBytes);

// The destination of a span's folded sums, and the numbers needed for folding.
struct Fold {
  float* folded = nullptr;  // [kUnitNumbers]; null: nothing to fold
  const KTileNumbers* numbers = nullptr;
  std::int64_t column = 0;  // first column of the span, and its index, in the K tile
  std::int64_t span = 0;
  int output = 0;
  std::int64_t token[2] = {0, 0};  // first token of each tile, within the block
};

// Folds sixteen tokens x 16 outputs of a span.
template <int kBits>
inline __attribute__((always_inline)) void fold_tokens(const Fold& fold, const std::int32_t* sums,
                                                       int tile) {
  const KTileNumbers& numbers = *fold.numbers;
  const SpanNumbers<kSuperTileColumns>& weights = numbers.weights;
  const __m512 d = _mm512_load_ps(weights.d[fold.column / 256] + fold.output);
  const __m512 dmin = _mm512_load_ps(weights.dmin[fold.column / 256] + fold.output);
  const __m512i minima0 = _mm512_load_si512(weights.minima[fold.span][0][fold.output]);
  const __m512i minima1 = _mm512_load_si512(weights.minima[fold.span][1][fold.output]);
  const float* by_token = numbers.token_scales[fold.span] + fold.token[tile];
  const std::int32_t* pairs = numbers.pairs[fold.token[tile]] + fold.column / 64;
  float* const folded = fold.folded + tile * kTileNumbers;
  sums += tile * 2 * kTileNumbers;
#pragma GCC unroll 16
  for (int row = 0; row < kTileTokens; ++row, pairs += kPairStride) {
    const __m512i low = _mm512_load_si512(sums + row * 16);
    const __m512i high = _mm512_load_si512(sums + kTileNumbers + row * 16);
    const __m512i a = _mm512_add_epi32(low, _mm512_slli_epi32(high, kBits == 6 ? 8 : 3));
    const __m512 scale = _mm512_set1_ps(by_token[row]);
    __m512 f = _mm512_load_ps(folded + row * 16);
    f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(a), _mm512_mul_ps(d, scale), f);
    if constexpr (kBits != 6) {
      __m512i b = _mm512_madd_epi16(minima0, _mm512_set1_epi32(pairs[0]));
      b = _mm512_dpwssd_epi32(b, minima1, _mm512_set1_epi32(pairs[1]));
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
template <int kBits>
inline __m512i sub_scales_of(const SuperPanel& panel, std::int64_t block, int output) {
  constexpr std::int64_t kNumbers = kBits == 6 ? 1 : 2;
  const std::uint8_t* from = panel.sub_scales + block * kNumbers * 64 + output;
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if constexpr (kBits != 6) return Lanes512::twice(_mm512_cvtepu8_epi32(bytes));
  const __m512i scales = _mm512_cvtepi8_epi32(bytes);
  return Lanes512::twice(_mm512_and_si512(scales, _mm512_set1_epi32(0xffff)));
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
  } else {
    // A code times three bits is at most 31 * 7, so that one product of 16-bit lanes multiplies two
    // bytes.
    const __m512i low = _mm512_and_si512(scales, _mm512_set1_epi16(7));
    _mm512_store_si512(to, _mm512_mullo_epi16(codes, low));
    _mm512_store_si512(to + 64, _mm512_mullo_epi16(codes, _mm512_srli_epi16(scales, 3)));
  }
}

template <int kBits>
void multiply_codes(const SuperPanel& panel, std::int64_t column, std::int64_t columns,
                    Scratch& scratch) {
  for (int output = 0; output < 64; output += 16) {
    std::uint8_t* to = scratch.products[output / 32] + output % 32 / 16 * 128;
    for (std::int64_t k = column; k < column + columns; k += 32, to += 8 * 256) {
      const __m512i first = sub_scales_of<kBits>(panel, k / (kBits == 6 ? 16 : 32), output);
      const __m512i second = kBits == 6 ? sub_scales_of<kBits>(panel, k / 16 + 1, output) : first;
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

// Reads the numbers of columns [column, column + columns), a multiple of the span.
template <int kBits>
void read_numbers(const SuperPanel& panel, const TokenBlock& block, std::int64_t column,
                  std::int64_t columns, KTileNumbers& numbers) {
  const std::int64_t padded = (columns + kSuperPad - 1) / kSuperPad * kSuperPad;
  cpu::read_numbers<Lanes512, kBits != 6>(panel, column, padded, numbers.weights);
  const std::int64_t first = panel.scale_by_span ? column / panel.span : 0;
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    const float* scales = panel.token_scales + (block.token + t) * panel.token_scale_stride + first;
    for (std::int64_t span = 0; span < columns / panel.span; ++span) {
      numbers.token_scales[span][t] = scales[panel.scale_by_span ? span : 0];
    }
    if constexpr (kBits != 6) {
      pair_sums(panel, block.token + t, column, padded, numbers.pairs[t]);
    }
  }
}

// --- products of tiles ---

// Columns [first, end) of a K tile that begins at `column`, and units [unit, end_unit) of a block.
struct Part {
  std::int64_t column = 0, first = 0, end = 0;
  std::int64_t unit = 0, end_unit = 0;
};

// Multiplies a part, with S steps per span and T tiles of tokens.
template <int kBits, int S, int T>
void multiply_part(const SuperPanel& panel, const TokenBlock& block, const Part& part,
                   const KTileNumbers& numbers, Pipeline& pipeline) {
  constexpr Signs kSigns = kBits == 6 ? Signs::none_unsigned : Signs::weight_unsigned;
  auto& scratch = *reinterpret_cast<Scratch*>(panel.scratch);
  std::int32_t* const sums = scratch.sums;
  const std::int64_t stride = panel.input_stride, step = panel.span / S;
  for (std::int64_t at = part.unit * kQuarters; at < part.end_unit * kQuarters; ++at) {
    const std::int64_t unit = at / kQuarters, quarter = at % kQuarters;
    const std::int64_t token[2] = {block.first(unit, 0), block.first(unit, 1)};
    const std::uint8_t* x0 = panel.inputs + token[0] * stride + part.column + part.first;
    const std::uint8_t* x1 = panel.inputs + token[1] * stride + part.column + part.first;
    const std::uint8_t* w = scratch.products[quarter / 2] + part.first * 64 + quarter % 2 * 128;
    std::int64_t span = part.first / panel.span;
    for (std::int64_t column = part.first; column < part.end; column += panel.span, ++span) {
      *pipeline.now = {.folded = scratch.folded[unit][quarter],
                       .numbers = &numbers,
                       .column = column,
                       .span = span,
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
  using Multiply =
      void (*)(const SuperPanel&, const TokenBlock&, const Part&, const KTileNumbers&, Pipeline&);
  constexpr Multiply kMultiply[2][2] = {{multiply_part<kBits, 1, 1>, multiply_part<kBits, 1, 2>},
                                        {multiply_part<kBits, 2, 1>, multiply_part<kBits, 2, 2>}};
  auto& scratch = *reinterpret_cast<Scratch*>(panel.scratch);
  const std::int64_t end = (panel.columns + panel.span - 1) / panel.span * panel.span;
  const Tiles tiles(panel.span < 64 ? panel.span : 64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    __builtin_memset(scratch.folded, 0,
                     static_cast<std::size_t>(block.units()) * sizeof scratch.folded[0]);
    const Multiply multiply = kMultiply[panel.span > 64][block.tiles() - 1];
    const std::int64_t units = block.units();
    Pipeline pipeline;
    for (std::int64_t column = 0; column < end; column += kSuperTileColumns) {
      const std::int64_t columns =
          end - column < kSuperTileColumns ? end - column : kSuperTileColumns;
      const std::int64_t padded = (columns + kSuperPad - 1) / kSuperPad * kSuperPad;
      KTileNumbers& numbers = scratch.numbers[column / kSuperTileColumns % 2];
      multiply_codes<kBits>(panel, column, padded, scratch);
      read_numbers<kBits>(panel, block, column, columns, numbers);
      for (std::int64_t unit = 0; unit < units; unit += kPartUnits) {
        for (std::int64_t first = 0; first < columns; first += kPartColumns) {
          Part part{.column = column, .first = first, .unit = unit};
          part.end = columns - first < kPartColumns ? columns : first + kPartColumns;
          part.end_unit = units - unit < kPartUnits ? units : unit + kPartUnits;
          multiply(panel, block, part, numbers, pipeline);
        }
      }
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
