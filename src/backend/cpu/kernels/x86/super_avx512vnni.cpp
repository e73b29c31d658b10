// Codes under superblock scales with AVX-512 VNNI, for many tokens. A K tile of a panel is unpacked
// to bytes once for a block of tokens. Tiles of 6 tokens x 32 outputs hold the int32 sums of a
// sub-block, and of a span, in registers. A sub-block's sum is multiplied by its sub-scale
//   q4_k, q5_k   in 32 bits: it has up to 17;
//   q6_k         in 16 bits. The sum of 8 columns, with codes minus their zero point, is at most
//                8 * 32 * 127 < 2^15. Codes are then the signed side, and inputs q + 128 the
//                unsigned one.
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/super_codes.h"
#include "backend/cpu/kernels/x86/vnni.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kColumns = 512;  // columns of a K tile, whose codes remain in L1
constexpr std::int64_t kTokens = 6;     // tokens of a tile
// Tokens of a block, which share the preparation of a K tile; q6_k has inputs of its own in
// scratch.
template <int kBits>
constexpr std::int64_t kBlockTokens = kBits == 6 ? 160 : 416;
constexpr std::int64_t kPairStride = kColumns / 64 + 2;  // a span reads two pairs
constexpr std::int64_t kInputStride = kColumns + 64;     // not a multiple of 4 KB in any few rows

// Columns whose int32 sums are multiplied by a sub-scale at a time, and columns of a sub-scale.
template <int kBits>
constexpr std::int64_t kStep = kBits == 6 ? 8 : 32;
template <int kBits>
constexpr std::int64_t kScaled = kBits == 6 ? 16 : 32;

struct alignas(64) Scratch {
  std::uint8_t codes[2][kColumns / 4][32]
                    [4];  // halves of the outputs are apart: lines of one half,
                          // 256 bytes apart, would use half of the L1 cache
  std::int32_t scales[kColumns / 16][64];
  SpanNumbers<kColumns> numbers;
  union {
    struct {                                             // q4_k, q5_k
      float folded[kBlockTokens<4> * 64];                // per tile: [tokens][32 outputs]
      std::int32_t pairs[kBlockTokens<4>][kPairStride];  // pairs of sums of inputs
    } minima;
    struct {  // q6_k
      float folded[kBlockTokens<6> * 64];
      std::int32_t starts[kColumns / 8][64];                // -128 * sums of codes
      std::uint8_t inputs[kBlockTokens<6> * kInputStride];  // q + 128
    } of_6;
  };
};
static_assert(sizeof(Scratch) <= kSuperScratchBytes);

// A K tile of a panel, and a block of tokens.
struct Work {
  const SuperPanel& panel;
  Scratch& scratch;
  std::int64_t token = 0, tokens = 0;
  std::int64_t column = 0, columns = 0;
};

// --- preparation of a K tile ---

template <int kBits, int kQuad>
inline __attribute__((always_inline)) void unpack_quads(const Work& work, std::int64_t k) {
  if constexpr (kQuad < 8) {
    for (int output = 0; output < 64; output += 16) {
      __m512i codes = quad_codes<Lanes512, kBits, kQuad>(work.panel, work.column + k, output);
      if constexpr (kBits == 6) codes = _mm512_sub_epi8(codes, _mm512_set1_epi8(32));
      _mm512_store_si512(work.scratch.codes[output / 32][k / 4 + kQuad][output % 32], codes);
    }
    unpack_quads<kBits, kQuad + 1>(work, k);
  }
}

template <int kBits>
void read_scales(const Work& work) {
  Scratch& scratch = work.scratch;
  constexpr std::int64_t kSub = kScaled<kBits>;
  constexpr std::int64_t kNumbers = kBits == 6 ? 1 : 2;
  const std::uint8_t* sub = work.panel.sub_scales + work.column / kSub * kNumbers * 64;
  for (std::int64_t i = 0; i < work.columns / kSub; ++i, sub += kNumbers * 64) {
    for (int output = 0; output < 64; output += 16) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sub + output));
      // q6_k: the scale is in the lower half of its lane, whose upper half is 0, so that only the
      // lower halves of sums are multiplied.
      const __m512i scale =
          kBits == 6 ? _mm512_and_si512(_mm512_cvtepi8_epi32(bytes), _mm512_set1_epi32(0xffff))
                     : _mm512_cvtepu8_epi32(bytes);
      _mm512_store_si512(scratch.scales[i] + output, scale);
    }
  }
}

void sum_codes(const Work& work) {
  const __m512i offset = _mm512_set1_epi8(-128);  // 128 as an unsigned byte
  for (std::int64_t k = 0; k < work.columns; k += 8) {
    for (int output = 0; output < 64; output += 16) {
      const auto& quads = work.scratch.codes[output / 32];
      __m512i sums = _mm512_setzero_si512();
      dot(sums, offset, _mm512_load_si512(quads[k / 4][output % 32]));
      dot(sums, offset, _mm512_load_si512(quads[k / 4 + 1][output % 32]));
      _mm512_store_si512(work.scratch.of_6.starts[k / 8] + output,
                         _mm512_sub_epi32(_mm512_setzero_si512(), sums));
    }
  }
}

void offset_inputs(const Work& work) {
  for (std::int64_t t = 0; t < work.tokens; ++t) {
    const std::uint8_t* from =
        work.panel.inputs + (work.token + t) * work.panel.input_stride + work.column;
    std::uint8_t* to = work.scratch.of_6.inputs + t * kInputStride;
    for (std::int64_t k = 0; k < work.columns; k += 64) {
      const __m512i codes = _mm512_loadu_si512(from + k);
      _mm512_store_si512(to + k, _mm512_xor_si512(codes, _mm512_set1_epi8(-128)));
    }
  }
}

template <int kBits>
void prepare(const Work& work) {
  for (std::int64_t k = 0; k < work.columns; k += 32) unpack_quads<kBits, 0>(work, k);
  read_scales<kBits>(work);
  read_numbers<Lanes512, kBits != 6>(work.panel, work.column, work.columns, work.scratch.numbers);
  if constexpr (kBits == 6) {
    sum_codes(work);
    offset_inputs(work);
  } else {
    for (std::int64_t t = 0; t < work.tokens; ++t) {
      pair_sums(work.panel, work.token + t, work.column, work.columns,
                work.scratch.minima.pairs[t]);
    }
  }
}

// --- tiles ---

// M tokens x 32 outputs of a K tile.
template <int kBits, int M>
struct Tile {
  const Work& work;
  std::int64_t token;  // first token of the tile within the block
  int output;          // first output
  const std::uint8_t* inputs;
  std::int64_t stride;
  float* folded;

  // A of a span.
  inline __attribute__((always_inline)) void scaled(std::int64_t k, __m512i (&sum)[M][2]) const {
    const Scratch& scratch = work.scratch;
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) sum[m][0] = sum[m][1] = _mm512_setzero_si512();
    const std::uint8_t* w = scratch.codes[output / 32][k / 4][0];
    const std::uint8_t* x = inputs + k;
    const std::int32_t* start = scratch.of_6.starts[k / 8] + output;
    const std::int32_t* scales = scratch.scales[k / kScaled<kBits>] + output;
    for (std::int64_t left = work.panel.span / kScaled<kBits>; left > 0; --left, scales += 64) {
      const __m512i scale[2] = {_mm512_load_si512(scales), _mm512_load_si512(scales + 16)};
#pragma GCC unroll 2
      for (int part = 0; part < kScaled<kBits> / kStep<kBits>; ++part, start += 64) {
        __m512i c[M][2];
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) {
          c[m][0] = kBits == 6 ? _mm512_load_si512(start) : _mm512_setzero_si512();
          c[m][1] = kBits == 6 ? _mm512_load_si512(start + 16) : _mm512_setzero_si512();
        }
#pragma GCC unroll 8
        for (int quad = 0; quad < kStep<kBits> / 4; ++quad, w += 128, x += 4) {
          const __m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);
#pragma GCC unroll 6
          for (int m = 0; m < M; ++m) {
            const __m512i input = broadcast_quad(x + m * stride);
            if constexpr (kBits == 6) {
              dot(c[m][0], input, w0);
              dot(c[m][1], input, w1);
            } else {
              dot(c[m][0], w0, input);
              dot(c[m][1], w1, input);
            }
          }
        }
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
          for (int j = 0; j < 2; ++j) {
            if constexpr (kBits == 6) {
              asm("vpdpwssd %2, %1, %0" : "+v"(sum[m][j]) : "v"(c[m][j]), "v"(scale[j]));
            } else {
              sum[m][j] = _mm512_add_epi32(sum[m][j], _mm512_mullo_epi32(c[m][j], scale[j]));
            }
          }
        }
      }
    }
  }

  // Adds a span's A, and B, to the f32 sums.
  inline __attribute__((always_inline)) void fold(std::int64_t k, std::int64_t span,
                                                  const float* by_token,
                                                  const __m512i (&sum)[M][2]) const {
    const SpanNumbers<kColumns>& numbers = work.scratch.numbers;
    const std::int32_t* const pairs = work.scratch.minima.pairs[token] + k / 64;
    const std::int64_t scale_stride = work.panel.token_scale_stride;
    float* const to = folded;
    __m512 f[M][2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const int at = output + 16 * j;
      const __m512 d = _mm512_load_ps(numbers.d[k / 256] + at);
      const __m512 dmin = _mm512_load_ps(numbers.dmin[k / 256] + at);
      const __m512i first = _mm512_load_si512(numbers.minima[span][0][at]);
      const __m512i second = _mm512_load_si512(numbers.minima[span][1][at]);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) {
        const __m512 scale = _mm512_set1_ps(by_token[m * scale_stride]);
        f[m][j] = _mm512_load_ps(to + m * 32 + 16 * j);
        f[m][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[m][j]), _mm512_mul_ps(d, scale), f[m][j]);
        if constexpr (kBits != 6) {
          const std::int32_t* of = pairs + m * kPairStride;
          __m512i b = _mm512_madd_epi16(first, _mm512_set1_epi32(of[0]));
          b = _mm512_dpwssd_epi32(b, second, _mm512_set1_epi32(of[1]));
          f[m][j] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(b), _mm512_mul_ps(dmin, scale), f[m][j]);
        }
      }
    }
    // Stored last, since the compiler must assume that a store changes what the loops above read.
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      _mm512_store_ps(to + m * 32, f[m][0]);
      _mm512_store_ps(to + m * 32 + 16, f[m][1]);
    }
  }

  // Adds the spans of the K tile to the f32 sums.
  void run() const {
    const SuperPanel& panel = work.panel;
    const float* by_token = panel.token_scales + (work.token + token) * panel.token_scale_stride;
    if (panel.scale_by_span) by_token += work.column / panel.span;
    const std::int64_t left = panel.columns - work.column;
    const std::int64_t columns = left < work.columns ? left : work.columns;
    for (std::int64_t k = 0, span = 0; k < columns; k += panel.span, ++span) {
      __m512i a[M][2];
      scaled(k, a);
      fold(k, span, by_token, a);
      if (panel.scale_by_span) ++by_token;
    }
  }
};

template <int kBits, int M>
void run_tile(const Work& work, std::int64_t token, int output) {
  const SuperPanel& panel = work.panel;
  float* const folded = (kBits == 6 ? work.scratch.of_6.folded : work.scratch.minima.folded) +
                        token * 64 + output * M;
  const Tile<kBits, M> tile = {
      work,
      token,
      output,
      kBits == 6 ? work.scratch.of_6.inputs + token * kInputStride
                 : panel.inputs + (work.token + token) * panel.input_stride + work.column,
      kBits == 6 ? kInputStride : panel.input_stride,
      folded};
  if (work.column == 0) {
    for (int i = 0; i < M * 32; i += 16) _mm512_store_ps(folded + i, _mm512_setzero_ps());
  }
  tile.run();
  if (work.column + work.columns < panel.columns) return;
  for (int m = 0; m < M; ++m) {
    for (int j = 0; j < 32; j += 16) {
      __m512 f = _mm512_load_ps(folded + m * 32 + j);
      if (panel.bias != nullptr) f = _mm512_add_ps(f, _mm512_loadu_ps(panel.bias + output + j));
      _mm512_storeu_ps(panel.y + (work.token + token + m) * panel.y_stride + output + j, f);
    }
  }
}

template <int kBits>
void run_block(Work& work) {
  using RunTile = void (*)(const Work&, std::int64_t, int);
  constexpr RunTile kTiles[] = {run_tile<kBits, 4>, run_tile<kBits, 5>, run_tile<kBits, 6>};
  const SuperPanel& panel = work.panel;
  const std::int64_t padded = (panel.columns + kSuperPad - 1) / kSuperPad * kSuperPad;
  const std::int64_t tiles = (work.tokens + kTokens - 1) / kTokens;
  for (work.column = 0; work.column < padded; work.column += kColumns) {
    work.columns = padded - work.column < kColumns ? padded - work.column : kColumns;
    prepare<kBits>(work);
    for (int output = 0; output < 64; output += 32) {
      for (std::int64_t i = 0; i < tiles; ++i) {
        const std::int64_t first = work.tokens * i / tiles;
        kTiles[work.tokens * (i + 1) / tiles - first - 4](work, first, output);
      }
    }
  }
}

template <int kBits>
void run(const SuperPanel& panel) {
  constexpr std::int64_t kMost = kBlockTokens<kBits>;
  const std::int64_t blocks = (panel.tokens + kMost - 1) / kMost;
  Work work{panel, *reinterpret_cast<Scratch*>(panel.scratch)};
  for (std::int64_t b = 0; b < blocks; ++b) {
    work.token = panel.tokens * b / blocks;
    work.tokens = panel.tokens * (b + 1) / blocks - work.token;
    run_block<kBits>(work);
  }
}

}  // namespace

void super_avx512vnni(const SuperPanel& panel) noexcept {
  (panel.bits == 4 ? run<4> : panel.bits == 5 ? run<5> : run<6>)(panel);
}

}  // namespace leq::cpu
