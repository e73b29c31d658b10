// Products for tiles of many tokens on levels without 512-bit dot products (the template argument
// Products of blocks.h):
//   kTokens          tokens of the largest tile; its outputs fill two registers
//   kKTileColumns    columns multiplied by all tokens of a block before the next ones, so that a
//                    register pair of their codes remains in the L1 cache; a multiple of every
//                    group
//   kBlockTokens     tokens that share the codes of a K tile; whole tiles
//   kStepLines       lines that add() prefetches per 32 columns
//   kCodeBits        bits of a code in the panel's plane at `codes`
//   kCodeScratch     bytes of scratch for a register pair's codes
//   kInputCapacity       bytes of scratch for inputs_of()
//   kUnpacks         whether the first tile of a register pair reads codes in the panel's form and
//                    writes them to scratch in the form that the instruction needs,
//                    for the tiles that follow
//   point_at_codes() sets a cursor to the codes of a register pair
//   inputs_of()      returns the inputs of a K tile
//   add()            adds exact int32 sums over columns to the start values that start() writes
//                    when their registers are needed
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kStepColumns = 32;

struct KTile {
  std::int64_t first = 0;  // first column
  std::int64_t columns = 0;
  std::int64_t token = 0;  // first token of the block
  std::int64_t tokens = 0;
};
struct KTileInputs {
  const std::uint8_t* bytes = nullptr;  // inputs of the block's first token
  std::int64_t stride = 0;
};

// Codes in the panel's form (packed), or in the form that the instruction needs (ready).
enum class Codes { packed, ready };

// The position of a tile in its columns: the addresses that it reads next.
struct Cursor {
  const std::uint8_t* codes = nullptr;   // ready codes
  const std::uint8_t* packed = nullptr;  // packed codes; `third`: third bits of 3-bit codes
  const std::uint8_t* third = nullptr;   // or the table of TableCodes
  std::uint8_t* scratch = nullptr;       // destination of unpacked codes
  const std::uint8_t* inputs = nullptr;
  std::int64_t stride = 0;              // stride of the inputs
  const std::uint8_t* ahead = nullptr;  // lines to prefetch
};

inline __attribute__((always_inline)) void fetch_line(Cursor& cursor) {
  _mm_prefetch(reinterpret_cast<const char*>(cursor.ahead), _MM_HINT_T1);
  cursor.ahead += 64;
}

// Sources of codes: load() returns both registers of a register pair for product k of 32 columns,
// next() advances by kColumns: 32, or 16 (kHalves) for groups of 16. A tile that unpacks overlaps
// unpacking with its products, because unpacking before the products took a tenth of the time of 16
// tokens.

// Loads two registers of ready codes, which are kBytes apart.
template <class L>
inline __attribute__((always_inline)) void load_ready(const std::uint8_t* codes,
                                                      typename L::Ints& w0, typename L::Ints& w1) {
  w0 = L::load_ints(codes);
  w1 = L::load_ints(codes + L::kBytes);
}
template <class L>
inline __attribute__((always_inline)) void leave(std::uint8_t* scratch, typename L::Ints w0,
                                                 typename L::Ints w1) {
  L::store_ints(scratch, w0);
  L::store_ints(scratch + L::kBytes, w1);
}

// 8-bit codes, which are read directly from the panel.
template <class L>
struct PanelCodes {
  static constexpr bool kUnpacks = false, kHalves = false;
  static constexpr std::int64_t kColumns = kStepColumns;
  static constexpr int kColumnBytes = 0;  // bytes of scratch
  static constexpr std::int64_t kCodeBits = 8;

  static void point_at_codes(const IntPanel& panel, const KTile& k_tile, int output, std::uint8_t*,
                             Cursor& cursor) {
    cursor.codes = panel.codes + k_tile.first * 64 + output * 4;
  }
  template <Codes, int kQuad>
  static inline __attribute__((always_inline)) void load(const Cursor& cursor, typename L::Ints& w0,
                                                         typename L::Ints& w1) {
    load_ready<L>(cursor.codes + kQuad * 256, w0, w1);
  }
  template <Codes>
  static inline void next(Cursor& cursor) {
    cursor.codes += kStepColumns * 64;
  }
};

// Advances to the codes of the next step: ready codes, or packed codes and their destination.
template <Codes kCodes>
inline void step_on(Cursor& cursor, std::int64_t packed_bytes, std::int64_t scratch_bytes) {
  if constexpr (kCodes == Codes::ready) {
    cursor.codes += scratch_bytes;
  } else {
    cursor.packed += packed_bytes;
    cursor.scratch += scratch_bytes;
  }
}

// Signed 8-bit codes widened to 16 bits. Columns 0 and 2 of four form a pair, and columns 1 and 3,
// because shifts widen either the even or the odd bytes.
template <class L>
struct WideCodes {
  static constexpr bool kUnpacks = true;
  static constexpr bool kUnsigned = false;
  static constexpr int kPairBytes = 2 * L::kBytes;
  static constexpr int kColumnBytes = kPairBytes / 2;
  static constexpr std::int64_t kCodeBits = 8;

  static void point_at_codes(const IntPanel& panel, const KTile& k_tile, int output,
                             std::uint8_t* scratch, Cursor& cursor) {
    cursor.packed = panel.codes + k_tile.first * 64 + output * 4;
    cursor.codes = cursor.scratch = scratch;
  }
  template <Codes kCodes, int kPair>
  static inline __attribute__((always_inline)) void load(const Cursor& cursor, typename L::Ints& w0,
                                                         typename L::Ints& w1) {
    if constexpr (kCodes == Codes::ready) {
      load_ready<L>(cursor.codes + kPair * kPairBytes, w0, w1);
    } else {
      load_ready<L>(cursor.packed + kPair / 2 * 256, w0, w1);
      w0 = widened<kPair % 2 == 1>(w0);
      w1 = widened<kPair % 2 == 1>(w1);
      leave<L>(cursor.scratch + kPair * kPairBytes, w0, w1);
    }
  }
  template <bool kOdd>
  static inline __attribute__((always_inline)) typename L::Ints widened(typename L::Ints bytes) {
    constexpr int kPlaces = kOdd ? 0 : 8;
    return L::high_signed(L::template shifted<kPlaces>(bytes));
  }
  template <Codes kCodes>
  static inline void next(Cursor& cursor) {
    step_on<kCodes>(cursor, kStepColumns * 64, kStepColumns * kColumnBytes);
  }
};

// Like WideCodes, but for unsigned codes, or 4-bit codes' numbers in a table, minus their zero
// points. Each zero point depends on output and group, so that all codes are written before the
// first tile.
template <class L, bool kTable = false>
struct WideDifferences : WideCodes<L> {
  using Ints = typename L::Ints;
  static constexpr bool kUnpacks = false;
  static constexpr bool kUnsigned = true;
  static constexpr std::int64_t kCodeBits = kTable ? 4 : 8;

  // Four columns of L::kOutputs outputs.
  static inline Ints bytes_of(const IntPanel& panel, std::int64_t column, int output) {
    if constexpr (!kTable) return L::load_ints(panel.codes + column * 64 + output * 4);
    const Ints pairs = L::load_ints(panel.codes + column / 8 * 256 + output * 4);
    const Ints codes =
        L::both(column % 8 == 0 ? pairs : L::template shifted<-4>(pairs), L::repeat8(15));
    return L::lookup(L::load_ints(panel.table), codes);
  }

  static inline Ints zeros_of(const IntPanel& panel, std::int64_t column, int output) {
    if (panel.zeros == nullptr) return L::repeat16(panel.zero);
    const std::int64_t group = panel.group == 0 ? 0 : column / panel.group;
    return L::twice(L::from_u8(panel.zeros + group * panel.zero_stride + output));
  }

  static void point_at_codes(const IntPanel& panel, const KTile& k_tile, int output,
                             std::uint8_t* scratch, Cursor& cursor) {
    const Ints low = L::repeat16(0xff);
    std::uint8_t* to = scratch;
    const std::int64_t end = k_tile.first + k_tile.columns;
    for (std::int64_t k = k_tile.first; k < end; k += 4, to += 2 * WideCodes<L>::kPairBytes) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const Ints bytes = bytes_of(panel, k, output + j * L::kOutputs);
        const Ints zeros = zeros_of(panel, k, output + j * L::kOutputs);
        L::store_ints(to + j * L::kBytes, L::sub16(L::both(bytes, low), zeros));
        L::store_ints(to + (2 + j) * L::kBytes, L::sub16(L::template shifted<-8>(bytes), zeros));
      }
    }
    cursor.codes = scratch;
  }
};

// Codes below 8 bits, one per byte: quad kQuad of the 32 columns at `low` and `high`.
template <class L, int kBits, int kQuad>
inline __attribute__((always_inline)) typename L::Ints narrow_codes(const std::uint8_t* low,
                                                                    const std::uint8_t* high) {
  using Ints = typename L::Ints;
  constexpr int kLow = kBits == 3 ? 2 : kBits;
  constexpr int kQuadsOfByte = 8 / kLow;
  const Ints bytes = L::load_ints(low + kQuad / kQuadsOfByte * 256);
  const Ints codes = L::both(L::template shifted<-(kQuad % kQuadsOfByte) * kLow>(bytes),
                             L::repeat8((1 << kLow) - 1));
  if constexpr (kBits != 3) return codes;
  const Ints third = L::template shifted<2 - kQuad>(L::load_ints(high));
  return L::either(codes, L::both(third, L::repeat8(4)));
}

// Codes below 8 bits, unpacked to bytes for byte products.
template <class L, int kBits, std::int64_t kColumns_ = kStepColumns>
struct UnpackedCodes {
  static constexpr std::int64_t kColumns = kColumns_;
  static constexpr bool kUnpacks = true, kHalves = kColumns < kStepColumns;
  static constexpr int kLow = kBits == 3 ? 2 : kBits;
  static constexpr int kQuadBytes = 2 * L::kBytes;
  static constexpr int kColumnBytes = kQuadBytes / 4;
  static constexpr std::int64_t kCodeBits = kLow;

  static void point_at_codes(const IntPanel& panel, const KTile& k_tile, int output,
                             std::uint8_t* scratch, Cursor& cursor) {
    cursor.packed = panel.codes + k_tile.first * 8 * kLow + output * 4;
    if (kBits == 3) cursor.third = panel.high_codes + k_tile.first * 8 + output * 4;
    cursor.codes = cursor.scratch = scratch;
  }
  template <Codes kCodes, int kQuad>
  static inline __attribute__((always_inline)) void load(const Cursor& cursor, typename L::Ints& w0,
                                                         typename L::Ints& w1) {
    if constexpr (kCodes == Codes::ready) {
      load_ready<L>(cursor.codes + kQuad * kQuadBytes, w0, w1);
    } else {
      const std::uint8_t* const third = kBits == 3 ? cursor.third + L::kBytes : nullptr;
      w0 = narrow_codes<L, kBits, kQuad>(cursor.packed, cursor.third);
      w1 = narrow_codes<L, kBits, kQuad>(cursor.packed + L::kBytes, third);
      leave<L>(cursor.scratch + kQuad * kQuadBytes, w0, w1);
    }
  }
  template <Codes kCodes>
  static inline void next(Cursor& cursor) {
    step_on<kCodes>(cursor, kColumns * 8 * kLow, kColumns * kColumnBytes);
    if (kBits == 3 && kCodes != Codes::ready) cursor.third += kColumns * 8;
  }
};

// 4-bit codes, unpacked to their numbers in a table.
template <class L, std::int64_t kColumns = kStepColumns>
struct TableCodes : UnpackedCodes<L, 4, kColumns> {
  using Base = UnpackedCodes<L, 4, kColumns>;

  static void point_at_codes(const IntPanel& panel, const KTile& k_tile, int output,
                             std::uint8_t* scratch, Cursor& cursor) {
    Base::point_at_codes(panel, k_tile, output, scratch, cursor);
    cursor.third = panel.table;
  }
  template <Codes kCodes, int kQuad>
  static inline __attribute__((always_inline)) void load(const Cursor& cursor, typename L::Ints& w0,
                                                         typename L::Ints& w1) {
    if constexpr (kCodes == Codes::ready) {
      Base::template load<kCodes, kQuad>(cursor, w0, w1);
    } else {
      const auto table = L::load_ints(cursor.third);
      w0 = L::lookup(table, narrow_codes<L, 4, kQuad>(cursor.packed, nullptr));
      w1 = L::lookup(table, narrow_codes<L, 4, kQuad>(cursor.packed + L::kBytes, nullptr));
      leave<L>(cursor.scratch + kQuad * Base::kQuadBytes, w0, w1);
    }
  }
};

// Inputs are read directly from their rows. Contiguous copies were not read faster, and copying
// took 6 % of the time of a panel of 4 bits.
struct InputRows {
  static constexpr std::int64_t kBlockTokens = 192;
  static constexpr std::int64_t kInputCapacity = 0;

  static KTileInputs inputs_of(const IntPanel& panel, const KTile& k_tile, std::uint8_t*) {
    return {panel.inputs + k_tile.token * panel.input_stride + k_tile.first, panel.input_stride};
  }
};

// Products of 8-bit codes of any Source by vpmaddwd, which multiplies two pairs of 16-bit numbers.
// Codes minus zero points, and inputs, are widened, so that all sums start at 0.
template <class L, int kMaxTokens, class Source>
struct WordProducts : Source {
  using Lanes = L;
  using Ints = typename L::Ints;
  static constexpr int kTokens = kMaxTokens;
  static constexpr std::int64_t kKTileColumns = 512;
  static constexpr std::int64_t kCodeScratch = kKTileColumns * Source::kColumnBytes;
  static constexpr int kStepLines = 2;
  static constexpr std::int64_t kBlockTokens = 96;
  static constexpr std::int64_t kInputStride = 2 * kKTileColumns + 64;
  static constexpr std::int64_t kInputCapacity = kBlockTokens * kInputStride;

  // Writes columns 0 and 2 of each four of 32 columns, then columns 1 and 3. Inputs for signed
  // codes are converted from q + 128 to q. Rows of a K tile are too short for the hardware
  // prefetcher, so that later rows are prefetched here. If only 16 columns remain, the row's
  // padding, which is 0, is read too.
  static constexpr std::int64_t kRowsAhead = 3;
  static KTileInputs inputs_of(const IntPanel& panel, const KTile& k_tile, std::uint8_t* scratch) {
    const std::uint8_t* from = panel.inputs + k_tile.token * panel.input_stride + k_tile.first;
    const __m256i flip = _mm256_set1_epi8(Source::kUnsigned ? 0 : -128);
    const std::int64_t tokens = k_tile.tokens, columns = k_tile.columns;
    for (std::int64_t t = 0; t < tokens; ++t, from += panel.input_stride) {
      const std::uint8_t* const ahead = from + kRowsAhead * panel.input_stride;
      auto* to = reinterpret_cast<__m256i*>(scratch + t * kInputStride);
      for (std::int64_t k = 0; k < columns; k += 32, to += 2) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead + k), _MM_HINT_T0);
        const __m256i codes =
            _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + k)), flip);
        _mm256_store_si256(to, _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8));
        _mm256_store_si256(to + 1, _mm256_srai_epi16(codes, 8));
      }
    }
    return {scratch, kInputStride};
  }

  template <Codes kCodes, int M, class Start>
  static inline __attribute__((always_inline)) void add(Cursor& cursor, std::int64_t columns,
                                                        Ints (&c)[M][2], Start start) {
    start();
    std::int64_t left = columns;
    do {
      add_pairs<kCodes, 0>(cursor, c);
      Source::template next<kCodes>(cursor);
      cursor.inputs += 2 * kStepColumns;
      left -= kStepColumns;
    } while (left > 0);
  }

  template <Codes kCodes, int kPair, int M>
  static inline __attribute__((always_inline)) void add_pairs(Cursor& cursor, Ints (&c)[M][2]) {
    if constexpr (kPair < kStepColumns / 2) {
      if constexpr (kPair % 8 == 0) fetch_line(cursor);
      Ints w0, w1;
      Source::template load<kCodes, kPair>(cursor, w0, w1);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const std::uint8_t* input =
            cursor.inputs + m * cursor.stride + kPair / 2 * 4 + kPair % 2 * 32;
        L::add_words(c[m][0], c[m][1], w0, w1, input);
      }
      add_pairs<kCodes, kPair + 1>(cursor, c);
    }
  }
};

// The number of columns whose products fit into 16-bit sums. A pair is at most 2 * 15 * 127 = 3,810
// with 4 bits (8 pairs fit), 1,778 with 3 bits (16 pairs fit), 762 with 2 bits (32 fit).
constexpr std::int64_t narrow_columns(int bits) { return bits == 4 ? 32 : bits == 3 ? 64 : 128; }

// The largest zero point of a table whose unsigned bytes are at most 24.
constexpr int kSmallTableZero = 12;

// Exact products of codes of at most 4 bits by vpmaddubsw, which adds pairs to 16 bits.
template <class L, int kMaxTokens, class Source_>
struct NarrowSums : Source_, InputRows {
  using Lanes = L;
  using Ints = typename L::Ints;
  using Source = Source_;
  static constexpr int kTokens = kMaxTokens;
  static constexpr std::int64_t kCodeScratch = 16 * 1024;
  static constexpr std::int64_t kKTileColumns = kCodeScratch / Source::kColumnBytes;
  static constexpr int kStepLines = 1;

  template <int M>
  static inline __attribute__((always_inline)) void widen(const Ints (&narrow)[M][2],
                                                          Ints (&c)[M][2]) {
    const Ints ones = L::repeat16(1);
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      c[m][0] = L::add32(c[m][0], L::products16(narrow[m][0], ones));
      c[m][1] = L::add32(c[m][1], L::products16(narrow[m][1], ones));
    }
  }

  // Adds the products of quads [kQuad, kEnd); those of quad kFirst begin the sums if kBegins.
  template <Codes kCodes, bool kBegins, int kFirst, int kQuad, int kEnd, int M>
  static inline __attribute__((always_inline)) void add_quads(const Cursor& cursor,
                                                              Ints (&narrow)[M][2]) {
    if constexpr (kQuad < kEnd) {
      Ints w0, w1;
      Source::template load<kCodes, kQuad>(cursor, w0, w1);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const std::uint8_t* input = cursor.inputs + m * cursor.stride + kQuad * 4;
        if constexpr (kBegins && kQuad == kFirst) {
          L::begin_bytes(narrow[m][0], narrow[m][1], w0, w1, input);
        } else {
          L::add_bytes(narrow[m][0], narrow[m][1], w0, w1, input);
        }
      }
      add_quads<kCodes, kBegins, kFirst, kQuad + 1, kEnd>(cursor, narrow);
    }
  }
};

// Groups of several steps.
template <class L, int kMaxTokens, int kBits>
struct NarrowProducts : NarrowSums<L, kMaxTokens, UnpackedCodes<L, kBits>> {
  using Sums = NarrowSums<L, kMaxTokens, UnpackedCodes<L, kBits>>;
  using Ints = typename L::Ints;

  template <Codes kCodes, int M, class Start>
  static inline __attribute__((always_inline)) void add(Cursor& cursor, std::int64_t columns,
                                                        Ints (&c)[M][2], Start start) {
    start();
    std::int64_t left = columns;
    do {
      Ints narrow[M][2];
      const std::int64_t rest = left - narrow_columns(kBits);
      add_step<kCodes, true>(cursor, narrow);
      for (left -= kStepColumns; left > rest && left > 0; left -= kStepColumns) {
        add_step<kCodes, false>(cursor, narrow);
      }
      Sums::widen(narrow, c);
    } while (left > 0);
  }

  // Adds the products of 32 columns to the sums or, if kBegins, sets the sums to these products.
  template <Codes kCodes, bool kBegins, int M>
  static inline __attribute__((always_inline)) void add_step(Cursor& cursor, Ints (&narrow)[M][2]) {
    fetch_line(cursor);
    Sums::template add_quads<kCodes, kBegins, 0, 0, kStepColumns / 4>(cursor, narrow);
    Sums::template next<kCodes>(cursor);
    cursor.inputs += kStepColumns;
  }
};

// Groups of one step of 4-bit codes, 32 columns or 16 (Source::kHalves), whose 16-bit sums are
// widened each kWidened columns: 32 or, since numbers of a table up to 24 are at most 6,096 in
// pairs, 16. The start values are written late, because there are no registers for them beside the
// 16-bit sums.
template <class L, int kMaxTokens, class Source, int kWidened>
struct ShortProducts : NarrowSums<L, kMaxTokens, Source> {
  using Sums = NarrowSums<L, kMaxTokens, Source>;
  using Ints = typename L::Ints;

  template <Codes kCodes, int M, class Start>
  static inline __attribute__((always_inline)) void add(Cursor& cursor, std::int64_t,
                                                        Ints (&c)[M][2], Start start) {
    fetch_line(cursor);
    Ints narrow[M][2];
    Sums::template add_quads<kCodes, true, 0, 0, kWidened / 4>(cursor, narrow);
    start();
    Sums::widen(narrow, c);
    if constexpr (kWidened < Source::kColumns) {
      Sums::template add_quads<kCodes, true, 4, 4, 8>(cursor, narrow);
      Sums::widen(narrow, c);
    }
    Sums::template next<kCodes>(cursor);
    cursor.inputs += Source::kColumns;
  }
};

// The side of a byte product that is unsigned.
enum class Unsigned { codes, inputs };

// Products of codes of any Source by vpdpbusd, which multiplies four pairs of bytes.
template <class L, int kMaxTokens, class Source, Unsigned kSide>
struct DotProducts : Source, InputRows {
  using Lanes = L;
  using Ints = typename L::Ints;
  static constexpr int kTokens = kMaxTokens;
  static constexpr std::int64_t kKTileColumns = 512;
  static constexpr std::int64_t kCodeScratch = kKTileColumns * Source::kColumnBytes;
  static constexpr int kStepLines = 2;

  // If only 16 columns remain, the padding, which is 0, is read too.
  template <Codes kCodes, int M, class Start>
  static inline __attribute__((always_inline)) void add(Cursor& cursor, std::int64_t columns,
                                                        Ints (&c)[M][2], Start start) {
    start();
    std::int64_t left = columns;
    do {
      add_quads<kCodes, 0>(cursor, c);
      if constexpr (!Source::kHalves) add_quads<kCodes, 4>(cursor, c);
      Source::template next<kCodes>(cursor);
      cursor.inputs += Source::kColumns;
      left -= Source::kColumns;
    } while (left > 0);
  }

  // Adds quads from kQuad to the end of its half of 32 columns.
  template <Codes kCodes, int kQuad, int M>
  static inline __attribute__((always_inline)) void add_quads(Cursor& cursor, Ints (&c)[M][2]) {
    if constexpr (kQuad % 4 == 0) fetch_line(cursor);
    Ints w0, w1;
    Source::template load<kCodes, kQuad>(cursor, w0, w1);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const Ints input = L::repeat_quad(cursor.inputs + m * cursor.stride + kQuad * 4);
      if constexpr (kSide == Unsigned::codes) {
        L::dot(c[m][0], w0, input);
        L::dot(c[m][1], w1, input);
      } else {
        L::dot(c[m][0], input, w0);
        L::dot(c[m][1], input, w1);
      }
    }
    if constexpr (kQuad % 4 < 3) add_quads<kCodes, kQuad + 1>(cursor, c);
  }
};

}  // namespace
}  // namespace leq::cpu
