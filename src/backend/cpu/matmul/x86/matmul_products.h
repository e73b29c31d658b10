// How tiles of many tokens multiply where there are no 512-bit dot products (the argument Products
// of matmul_blocks.h):
//   kTokens               of the largest tile; its outputs are a strip, two registers
//   kStepColumns          columns that add() takes at once
//   kStepLines            lines that it fetches meanwhile
//   kCodeBits             of the panel's plane at `codes`
//   kBlockTokens          tokens that pass by the codes of a piece, whole tiles
//   kInputRoom            bytes that inputs_of() may write
//   codes_of()            codes of a strip in a piece of the columns as add() takes them: where
//   they
//                         lie, or written into kCodeRoom bytes, which the first cache holds
//   inputs_of()           inputs of a piece
//   add()                 adds int32 sums over columns, exact
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul/matmul_kernels.h"

namespace leq::cpu {
namespace {

// Columns that all tokens of a block pass through before the next: a strip of their codes stays in
// the first cache. A multiple of every group.
constexpr std::int64_t kPieceColumns = 512;
constexpr std::int64_t kQuads = kPieceColumns / 4;

struct Piece {
  std::int64_t first = 0;  // column
  std::int64_t columns = 0;
  std::int64_t token = 0;  // first of the block
  std::int64_t tokens = 0;
};
struct PieceInputs {
  const std::uint8_t* bytes = nullptr;  // of the block's first token
  std::int64_t stride = 0;
};

// Where a tile is on its way through the columns.
struct Walk {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* inputs = nullptr;
  std::int64_t stride = 0;              // of the inputs
  const std::uint8_t* ahead = nullptr;  // lines to be fetched
};

inline __attribute__((always_inline)) void fetch_line(Walk& walk) {
  _mm_prefetch(reinterpret_cast<const char*>(walk.ahead), _MM_HINT_T1);
  walk.ahead += 64;
}

// Inputs as they lie in their rows. Copied side by side they were read no faster, and copying took
// 6 % of the time of a panel of 4 bits.
struct InputRows {
  static constexpr std::int64_t kBlockTokens = 192;
  static constexpr std::int64_t kInputRoom = 0;

  static PieceInputs inputs_of(const IntPanel& panel, const Piece& piece, std::uint8_t*) {
    return {panel.inputs + piece.token * panel.input_stride + piece.first, panel.input_stride};
  }
};

// Any 8-bit codes by vpmaddwd, which multiplies two pairs of 16 bits: codes less their zero points
// and inputs are widened, so that no sum starts anywhere but at 0. Columns 0 and 2 of four make a
// pair, and 1 and 3, because shifts widen the even bytes and the odd ones.
template <class L, int kMostTokens, bool kUnsigned>
struct WordProducts {
  using Lanes = L;
  using Ints = typename L::Ints;
  static constexpr int kTokens = kMostTokens;
  static constexpr int kStepColumns = 32;
  static constexpr int kStepLines = 2;
  static constexpr int kQuadBytes = 4 * L::kBytes;
  static constexpr std::int64_t kCodeRoom = kQuads * kQuadBytes;
  static constexpr std::int64_t kCodeBits = 8;
  static constexpr std::int64_t kBlockTokens = 96;
  static constexpr std::int64_t kInputStride = 2 * kPieceColumns + 64;
  static constexpr std::int64_t kInputRoom = kBlockTokens * kInputStride;

  static inline Ints zeros_of(const IntPanel& panel, std::int64_t column, int output) {
    if constexpr (!kUnsigned) return L::repeat32(0);
    if (panel.zeros == nullptr) return L::repeat16(panel.zero);
    const std::int64_t group = panel.group == 0 ? 0 : column / panel.group;
    return L::twice(L::from_u8(panel.zeros + group * panel.zero_stride + output));
  }

  static const std::uint8_t* codes_of(const IntPanel& panel, const Piece& piece, int first_output,
                                      std::uint8_t* room) {
    const Ints low = L::repeat16(0xff);
    const std::uint8_t* from = panel.codes + piece.first * 64 + first_output * 4;
    std::uint8_t* to = room;
    const std::int64_t columns = piece.columns;
    for (std::int64_t k = 0; k < columns; k += 4, from += 256, to += kQuadBytes) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const Ints bytes = L::load(from + j * L::kBytes);
        Ints even, odd;
        if constexpr (kUnsigned) {
          const Ints zeros = zeros_of(panel, piece.first + k, first_output + j * L::kOutputs);
          even = L::sub16(L::both(bytes, low), zeros);
          odd = L::sub16(L::template shifted<-8>(bytes), zeros);
        } else {
          even = L::high_signed(L::template shifted<8>(bytes));
          odd = L::high_signed(bytes);
        }
        L::store(to + j * L::kBytes, even);
        L::store(to + (2 + j) * L::kBytes, odd);
      }
    }
    return room;
  }

  // Of 32 columns the first and third of each four, then the second and fourth. The inputs of
  // signed codes are q + 128; here they become q again. Rows of a piece are short, so that the
  // processor does not see by itself what comes next. Where 16 columns are left, the row's pads are
  // read too, which are 0.
  static constexpr std::int64_t kRowsAhead = 3;
  static PieceInputs inputs_of(const IntPanel& panel, const Piece& piece, std::uint8_t* room) {
    const std::uint8_t* from = panel.inputs + piece.token * panel.input_stride + piece.first;
    const __m256i flip = _mm256_set1_epi8(kUnsigned ? 0 : -128);
    const std::int64_t tokens = piece.tokens, columns = piece.columns;
    for (std::int64_t t = 0; t < tokens; ++t, from += panel.input_stride) {
      const std::uint8_t* const ahead = from + kRowsAhead * panel.input_stride;
      auto* to = reinterpret_cast<__m256i*>(room + t * kInputStride);
      for (std::int64_t k = 0; k < columns; k += 32, to += 2) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead + k), _MM_HINT_T0);
        const __m256i codes =
            _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + k)), flip);
        _mm256_store_si256(to, _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8));
        _mm256_store_si256(to + 1, _mm256_srai_epi16(codes, 8));
      }
    }
    return {room, kInputStride};
  }

  template <int M>
  static inline __attribute__((always_inline)) void add(Walk& walk, std::int64_t columns,
                                                        Ints (&c)[M][2]) {
    std::int64_t left = columns;
    do {
#pragma GCC unroll 16
      for (int pair = 0; pair < kStepColumns / 2; ++pair) {
        if (pair % 8 == 0) fetch_line(walk);
        const Ints w0 = L::load(walk.codes + pair * 2 * L::kBytes);
        const Ints w1 = L::load(walk.codes + pair * 2 * L::kBytes + L::kBytes);
#pragma GCC unroll 12
        for (int m = 0; m < M; ++m) {
          const std::uint8_t* input = walk.inputs + m * walk.stride + pair / 2 * 4 + pair % 2 * 32;
          L::add_words(c[m][0], c[m][1], w0, w1, input);
        }
      }
      walk.codes += kStepColumns / 4 * kQuadBytes;
      walk.inputs += 2 * kStepColumns;
      left -= kStepColumns;
    } while (left > 0);
  }
};

// Codes of fewer than 8 bits, one to a byte: quad kQuad of the 32 columns at `low` and `high`.
template <class L, int kBits, int kQuad>
inline __attribute__((always_inline)) typename L::Ints narrow_codes(const std::uint8_t* low,
                                                                    const std::uint8_t* high) {
  using Ints = typename L::Ints;
  constexpr int kLow = kBits == 3 ? 2 : kBits;
  constexpr int kQuadsOfByte = 8 / kLow;
  const Ints bytes = L::load(low + kQuad / kQuadsOfByte * 256);
  const Ints codes = L::both(L::template shifted<-(kQuad % kQuadsOfByte) * kLow>(bytes),
                             L::repeat8((1 << kLow) - 1));
  if constexpr (kBits != 3) return codes;
  const Ints third = L::template shifted<2 - kQuad>(L::load(high));
  return L::either(codes, L::both(third, L::repeat8(4)));
}

// Codes of fewer than 8 bits in bytes, for those who multiply bytes.
template <class L, int kBits>
struct UnpackedCodes {
  static constexpr int kLow = kBits == 3 ? 2 : kBits;
  static constexpr int kQuadBytes = 2 * L::kBytes;
  static constexpr std::int64_t kCodeRoom = kQuads * kQuadBytes;
  static constexpr std::int64_t kCodeBits = kLow;

  template <int kQuad = 0>
  static inline __attribute__((always_inline)) void unpack(const std::uint8_t* low,
                                                           const std::uint8_t* high,
                                                           std::uint8_t* to) {
    if constexpr (kQuad < 8) {
      L::store(to + kQuad * kQuadBytes, narrow_codes<L, kBits, kQuad>(low, high));
      unpack<kQuad + 1>(low, high, to);
    }
  }

  static const std::uint8_t* codes_of(const IntPanel& panel, const Piece& piece, int first_output,
                                      std::uint8_t* room) {
    const std::uint8_t* low = panel.codes + piece.first * 8 * kLow + first_output * 4;
    const std::uint8_t* high =
        kBits == 3 ? panel.high_codes + piece.first * 8 + first_output * 4 : nullptr;
    std::uint8_t* to = room;
    for (std::int64_t k = 0; k < piece.columns; k += 32, low += 256 * kLow, to += 8 * kQuadBytes) {
      unpack(low, high, to);
      unpack(low + L::kBytes, kBits == 3 ? high + L::kBytes : nullptr, to + L::kBytes);
      if (kBits == 3) high += 256;
    }
    return room;
  }
};

// Columns whose products fit into sums of 16 bits: pairs are at most 2 * 15 * 127 = 3,810 with 4
// bits, so that 8 of them fit; 1,778 with 3 bits and 16; 762 with 2 bits and 32.
constexpr std::int64_t narrow_columns(int bits) { return bits == 4 ? 32 : bits == 3 ? 64 : 128; }

// Codes of at most 4 bits by vpmaddubsw, which adds pairs of products to 16 bits, exact.
template <class L, int kMostTokens, int kBits>
struct NarrowProducts : UnpackedCodes<L, kBits>, InputRows {
  using Lanes = L;
  using Ints = typename L::Ints;
  static constexpr int kTokens = kMostTokens;
  static constexpr int kStepColumns = 32;
  static constexpr int kStepLines = 1;

  template <int M>
  static inline __attribute__((always_inline)) void add(Walk& walk, std::int64_t columns,
                                                        Ints (&c)[M][2]) {
    const Ints ones = L::repeat16(1);
    std::int64_t left = columns;
    do {
      Ints narrow[M][2];
      const std::int64_t rest = left - narrow_columns(kBits);
      add_quads<true>(walk, narrow);
      for (left -= kStepColumns; left > rest && left > 0; left -= kStepColumns) {
        add_quads<false>(walk, narrow);
      }
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        c[m][0] = L::add32(c[m][0], L::products16(narrow[m][0], ones));
        c[m][1] = L::add32(c[m][1], L::products16(narrow[m][1], ones));
      }
    } while (left > 0);
  }

  // One step; the sums begin with it, or go on.
  template <bool kBegins, int M>
  static inline __attribute__((always_inline)) void add_quads(Walk& walk, Ints (&narrow)[M][2]) {
    fetch_line(walk);
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad) {
      const Ints w0 = L::load(walk.codes + quad * 2 * L::kBytes);
      const Ints w1 = L::load(walk.codes + quad * 2 * L::kBytes + L::kBytes);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const std::uint8_t* input = walk.inputs + m * walk.stride + quad * 4;
        if (kBegins && quad == 0) {
          L::begin_bytes(narrow[m][0], narrow[m][1], w0, w1, input);
        } else {
          L::add_bytes(narrow[m][0], narrow[m][1], w0, w1, input);
        }
      }
    }
    walk.codes += 8 * 2 * L::kBytes;
    walk.inputs += kStepColumns;
  }
};

// Codes as they lie in the panel.
template <class L>
struct PanelCodes {
  static constexpr int kQuadBytes = 256;
  static constexpr std::int64_t kCodeRoom = 0;
  static constexpr std::int64_t kCodeBits = 8;

  static const std::uint8_t* codes_of(const IntPanel& panel, const Piece& piece, int first_output,
                                      std::uint8_t*) {
    return panel.codes + piece.first * 64 + first_output * 4;
  }
};

// Which side of a product of bytes is the unsigned one.
enum class Unsigned { codes, inputs };

// Codes of any Source by vpdpbusd, which multiplies four pairs of bytes.
template <class L, int kMostTokens, class Source, Unsigned kSide>
struct DotProducts : Source, InputRows {
  using Lanes = L;
  using Ints = typename L::Ints;
  static constexpr int kTokens = kMostTokens;
  static constexpr int kStepColumns = 16;
  static constexpr int kStepLines = 1;

  template <int M>
  static inline __attribute__((always_inline)) void add(Walk& walk, std::int64_t columns,
                                                        Ints (&c)[M][2]) {
    std::int64_t left = columns;
    do {
      fetch_line(walk);
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad) {
        const Ints w0 = L::load(walk.codes + quad * Source::kQuadBytes);
        const Ints w1 = L::load(walk.codes + quad * Source::kQuadBytes + L::kBytes);
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) {
          const Ints input = L::repeat_quad(walk.inputs + m * walk.stride + quad * 4);
          if constexpr (kSide == Unsigned::codes) {
            L::dot(c[m][0], w0, input);
            L::dot(c[m][1], w1, input);
          } else {
            L::dot(c[m][0], input, w0);
            L::dot(c[m][1], input, w1);
          }
        }
      }
      walk.codes += 4 * Source::kQuadBytes;
      walk.inputs += kStepColumns;
      left -= kStepColumns;
    } while (left > 0);
  }
};

}  // namespace
}  // namespace leq::cpu
