// A panel times many tokens for the levels without 512-bit dot products. Blocks of tokens are
// multiplied by K tiles, whose codes and inputs are first converted to the form that the tile's
// instruction needs (products.h). Fewer tokens are limited by memory, so that conversion
// would not pay; all these levels then use the AVX2 kernels.
#pragma once

#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/products.h"

namespace leq::cpu {
namespace {

// Start values of int32 sums. none: 0; weights: -128 * the weights' sums, since inputs are q + 128;
// zero, zeros: -zero point * the inputs' sums, with one zero point or one per output.
enum class Start { none, weights, zero, zeros };
// The sides with group scales. rows: no side, so that one int32 sum is over all columns. A value,
// not a template argument: it is looked at once a group, and each main loop is compiled once.
enum class Scales { rows, weights, tokens, both };

// Start values and scales of the groups in a K tile.
template <class Products>
struct GroupTables {
  static constexpr std::int64_t kGroups = Products::kKTileColumns / 16;
  static constexpr std::int64_t kTokens = Products::kBlockTokens;
  alignas(64) float scales[kGroups][64];         // scales of the weights
  alignas(64) std::int32_t starts[kGroups][64];  // -128 * sums, or -zero points
  // Copied from the inputs' rows, which are far apart. For Start::zero, sums are times -zero.
  alignas(64) float token_scales[kGroups][kTokens];
  alignas(64) std::int32_t token_sums[kGroups][kTokens];
};

template <Start kStart, class Products>
void fill_tables(const IntPanel& panel, const KTile& k_tile, Scales scales,
                 GroupTables<Products>& tables) {
  using L = typename Products::Lanes;
  const std::int64_t first = k_tile.first / panel.group;
  for (std::int64_t k = 0, g = 0; k < k_tile.columns; k += panel.group, ++g) {
    for (int output = 0; output < 64; output += L::kOutputs) {
      if (scales != Scales::tokens) {
        const auto scale = L::load_scales(panel, (first + g) * 64 + output);
        L::store(tables.scales[g] + output, L::mul(scale, L::repeat(panel.scale_mul)));
      }
      if constexpr (kStart == Start::weights) {
        const auto sums = L::from_i16(panel.group_sums + (first + g) * 64 + output);
        L::store_ints(tables.starts[g] + output, L::sub32(L::repeat32(0), L::times_128(sums)));
      } else if constexpr (kStart == Start::zeros) {
        const auto zero = L::from_u8(panel.zeros + (first + g) * panel.zero_stride + output);
        L::store_ints(tables.starts[g] + output, L::sub16(L::repeat32(0), zero));
      }
    }
  }
}

template <Start kStart, class Products>
void fill_token_tables(const IntPanel& panel, const KTile& k_tile, Scales scales,
                       GroupTables<Products>& tables) {
  const std::int64_t first = k_tile.first / panel.group;
  const std::int64_t groups = (k_tile.columns + panel.group - 1) / panel.group;
  for (std::int64_t g = 0; g < groups; ++g) {
    if (scales != Scales::weights) {
      const float* scale = panel.token_scales + k_tile.token * panel.token_scale_stride +
                           (first + g) / panel.groups_a_token_scale;
      for (std::int64_t t = 0; t < k_tile.tokens; ++t, scale += panel.token_scale_stride) {
        tables.token_scales[g][t] = *scale;
      }
    }
    if constexpr (kStart == Start::zero || kStart == Start::zeros) {
      const int factor = kStart == Start::zero ? -panel.zero : 1;
      const std::int32_t* sum =
          panel.token_sums + k_tile.token * panel.token_sum_stride + first + g;
      for (std::int64_t t = 0; t < k_tile.tokens; ++t, sum += panel.token_sum_stride) {
        tables.token_sums[g][t] = factor * *sum;
      }
    }
  }
}

// For sums of rows, which have their start values from begin_sums().
template <class Products>
void clear_starts(const KTile& k_tile, GroupTables<Products>& tables) {
  for (std::int32_t& start : tables.starts[0]) start = 0;
  for (std::int64_t t = 0; t < k_tile.tokens; ++t) tables.token_sums[0][t] = 0;
}

// Layout of the scratch of kIntScratchBytes.
template <class Products>
struct BlockScratch {
  static_assert(Products::kBlockTokens % Products::kTokens == 0);
  GroupTables<Products> tables;
  alignas(64) float sums[Products::kBlockTokens *
                         64];  // per tile: [tokens][outputs of a register pair]
  alignas(64) std::uint8_t codes[Products::kCodeScratch + 64];
  alignas(64) std::uint8_t inputs[Products::kInputCapacity + 64];
};

template <class Products>
struct Tile {
  Cursor cursor;
  const KTile* k_tile = nullptr;
  Scales scales = Scales::rows;
  std::int64_t token = 0;
  std::int64_t first = 0;  // token minus the block's first token
  int output = 0;
  float* sums = nullptr;
  const GroupTables<Products>* tables = nullptr;
};

// The int32 start values of row sums, which may be too large for 16-bit products.
template <class L, Start kStart>
inline typename L::Ints row_start(const IntPanel& panel, std::int64_t token, int output) {
  if constexpr (kStart == Start::none) return L::repeat32(0);
  if constexpr (kStart == Start::weights) {
    return L::sub32(L::repeat32(0), L::times_128(L::load_anywhere(panel.row_sums + output)));
  }
  const int sum = panel.token_sums[token * panel.token_sum_stride];
  if (panel.zeros == nullptr) return L::repeat32(-panel.zero * sum);
  return L::mul32(L::from_u8(panel.zeros + output), L::repeat32(-sum));
}

// Start values of a group's sums, for M tokens x a register pair. Negated zero points are in the
// lower halves of 32-bit lanes and are multiplied by the lower half of a token's sum of inputs,
// which is at most 128 * 127.
template <Start kStart, class Products, int M>
inline __attribute__((always_inline)) void start_group(const Tile<Products>& tile, std::int64_t g,
                                                       typename Products::Ints (&c)[M][2]) {
  using L = typename Products::Lanes;
  const std::int32_t* starts = tile.tables->starts[g] + tile.output;
  const std::int32_t* token_sums = tile.tables->token_sums[g] + tile.first;
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      if constexpr (kStart == Start::none) {
        c[m][j] = L::repeat32(0);
      } else if constexpr (kStart == Start::weights) {
        c[m][j] = L::load_ints(starts + j * L::kOutputs);
      } else if constexpr (kStart == Start::zero) {
        c[m][j] = L::repeat_quad(token_sums + m);
      } else {
        c[m][j] =
            L::products16(L::load_ints(starts + j * L::kOutputs), L::repeat_quad(token_sums + m));
      }
    }
  }
}

// f = fma(float(sum), weight scale * token scale, f) for the sums of a tile at the end of group `g`
// of a K tile.
template <Scales kScales, class Products, int M>
inline __attribute__((always_inline)) void add_scaled(const Tile<Products>& tile, std::int64_t g,
                                                      typename Products::Ints (&c)[M][2]) {
  using L = typename Products::Lanes;
  typename L::Floats by_weight[2] = {}, by_token = {};
  if constexpr (kScales != Scales::tokens) {
    by_weight[0] = L::load(tile.tables->scales[g] + tile.output);
    by_weight[1] = L::load(tile.tables->scales[g] + tile.output + L::kOutputs);
  }
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    if constexpr (kScales != Scales::weights) {
      by_token = L::repeat(tile.tables->token_scales[g][tile.first + m]);
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      float* const f = tile.sums + (2 * m + j) * L::kOutputs;
      if constexpr (kScales == Scales::both) {
        L::add_scaled(f, c[m][j], by_weight[j], by_token);
      } else {
        L::add_scaled(f, c[m][j], kScales == Scales::weights ? by_weight[j] : by_token);
      }
    }
  }
}

template <class L, int M>
inline __attribute__((always_inline)) void add_sums(float* sums,
                                                    const typename L::Ints (&c)[M][2]) {
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j, sums += L::kOutputs) {
      L::store_ints(sums, L::add32(L::load_ints(sums), c[m][j]));
    }
  }
}

// Adds the sums of group `g` to those of the tile.
template <class Products, int M>
inline __attribute__((always_inline)) void fold(const Tile<Products>& tile, std::int64_t g,
                                                typename Products::Ints (&c)[M][2]) {
  switch (tile.scales) {
    case Scales::rows:
      return add_sums<typename Products::Lanes>(tile.sums, c);
    case Scales::weights:
      return add_scaled<Scales::weights>(tile, g, c);
    case Scales::tokens:
      return add_scaled<Scales::tokens>(tile, g, c);
    case Scales::both:
      return add_scaled<Scales::both>(tile, g, c);
  }
}

template <Start kStart, class Products>
void begin_sums(const IntPanel& panel, const Tile<Products>& tile, std::int64_t tokens) {
  using L = typename Products::Lanes;
  float* sums = tile.sums;
  for (std::int64_t m = 0; m < tokens; ++m) {
    for (int j = 0; j < 2; ++j, sums += L::kOutputs) {
      const int output = tile.output + j * L::kOutputs;
      L::store_ints(sums, tile.scales == Scales::rows
                              ? row_start<L, kStart>(panel, tile.token + m, output)
                              : L::repeat32(0));
    }
  }
}

// y = fma(f, weight scale * token scale, bias), without the scales of groups.
template <class Products>
void finish_sums(const IntPanel& panel, const Tile<Products>& tile, std::int64_t tokens) {
  using L = typename Products::Lanes;
  const Scales scales = tile.scales;
  const float* sums = tile.sums;
  for (std::int64_t m = 0; m < tokens; ++m) {
    const std::int64_t token = tile.token + m;
    for (int j = 0; j < 2; ++j, sums += L::kOutputs) {
      const int output = tile.output + j * L::kOutputs;
      typename L::Floats f =
          scales == Scales::rows ? L::to_floats(L::load_ints(sums)) : L::load(sums);
      auto scale = L::repeat(1.0f);
      if (scales == Scales::rows || scales == Scales::weights) {
        scale = L::repeat(panel.token_scales[token * panel.token_scale_stride]);
      }
      if (scales == Scales::rows || scales == Scales::tokens) {
        scale = L::mul(scale, L::load(panel.row_scales + output));
      }
      f = panel.bias != nullptr ? L::fma(f, scale, L::load(panel.bias + output)) : L::mul(f, scale);
      L::store(panel.y + token * panel.y_stride + output, f);
    }
  }
}

// Multiplies M tokens x a register pair over one K tile.
template <class Products, Start kStart, Codes kCodes, int M>
void k_tile_kernel(const IntPanel& panel, const Tile<Products>& tile) {
  Cursor cursor = tile.cursor;
  typename Products::Ints c[M][2];
  std::int64_t left = tile.k_tile->columns;
  const std::int64_t group = tile.scales == Scales::rows ? left : panel.group;
  for (std::int64_t g = 0; left > 0; left -= group, ++g) {
    Products::template add<kCodes>(
        cursor, group < left ? group : left,
        c, [&]() __attribute__((always_inline)) { start_group<kStart>(tile, g, c); });
    fold(tile, g, c);
  }
}

// The fewest tokens for which a block is faster. Below 8 bits it is one tile of four, because a
// block unpacks codes once instead of twice.
constexpr std::int64_t kFewestOf8Bits = 5, kFewestOfFewerBits = 4;

// The kernel for a tile of `tokens` tokens. The fewest are those of a block of one tile, also of
// codes below 8 bits with a tile for 8 bits, or half of one token more than a tile has.
template <class Products>
using KTileKernel = void (*)(const IntPanel&, const Tile<Products>&);
template <class Products>
constexpr int kFewestOfTile =
    Products::kTokens / 2 < kFewestOfFewerBits ? Products::kTokens / 2 : kFewestOfFewerBits;
static_assert(kFewestOfFewerBits <= kFewestOf8Bits);
template <class Products, Start kStart, Codes kCodes, int M = kFewestOfTile<Products>>
KTileKernel<Products> tile_of(std::int64_t tokens) {
  if constexpr (M < Products::kTokens) {
    if (tokens > M) return tile_of<Products, kStart, kCodes, M + 1>(tokens);
  }
  return k_tile_kernel<Products, kStart, kCodes, M>;
}

// The bytes that the tiles of a K tile prefetch into L2: the codes of the next K tile, which is in
// this panel or in the next panel.
struct BytesAhead {
  const std::uint8_t* at = nullptr;
  const std::uint8_t* end = nullptr;
  const std::uint8_t* here = nullptr;  // address to prefetch if no bytes are left

  const std::uint8_t* take(std::int64_t bytes) {
    if (end - at < bytes) return here;
    at += bytes;
    return at - bytes;
  }
  // Prefetches `lines` lines, which the steps of few tiles would not cover.
  void fetch(std::int64_t lines) {
    for (; lines > 0 && at < end; --lines, at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
    }
  }
};
template <class Products>
BytesAhead bytes_ahead(const IntPanel& panel, const KTile& k_tile) {
  constexpr std::int64_t kColumnBytes = 8 * Products::kCodeBits;
  constexpr std::int64_t kMost = Products::kKTileColumns * kColumnBytes;
  const std::uint8_t* const here = panel.codes;
  const std::int64_t next = k_tile.first + k_tile.columns;
  if (next < panel.columns) {
    const std::int64_t left = (panel.columns - next) * kColumnBytes;
    const std::uint8_t* const at = panel.codes + next * kColumnBytes;
    return {at, at + (left < kMost ? left : kMost), here};
  }
  const std::int64_t bytes = panel.next_bytes < kMost ? panel.next_bytes : kMost;
  return {panel.next_codes, panel.next_codes + bytes, here};
}

// Prefetches the lines of a tile's results while the tile multiplies.
template <class Products>
inline __attribute__((always_inline)) void fetch_results(const IntPanel& panel,
                                                         const Tile<Products>& tile,
                                                         std::int64_t tokens) {
  const float* y = panel.y + tile.token * panel.y_stride + tile.output;
  for (std::int64_t m = 0; m < tokens; ++m, y += panel.y_stride) __builtin_prefetch(y, 1);
}

template <class Products, Start kStart>
void run_k_tile(const IntPanel& panel, const KTile& k_tile, Scales scales,
                BlockScratch<Products>& scratch) {
  using L = typename Products::Lanes;
  constexpr int kTileOutputs = 2 * L::kOutputs;
  if (scales == Scales::rows) {
    clear_starts<Products>(k_tile, scratch.tables);
  } else {
    fill_tables<kStart>(panel, k_tile, scales, scratch.tables);
    fill_token_tables<kStart>(panel, k_tile, scales, scratch.tables);
  }
  const KTileInputs inputs = Products::inputs_of(panel, k_tile, scratch.inputs);
  BytesAhead ahead = bytes_ahead<Products>(panel, k_tile);
  const std::int64_t tiles = (k_tile.tokens + Products::kTokens - 1) / Products::kTokens;
  const bool last = k_tile.first + k_tile.columns == panel.columns;
  const std::int64_t tile_lines = k_tile.columns / kStepColumns * Products::kStepLines;
  const std::int64_t all_tiles = tiles * (64 / kTileOutputs);
  const std::int64_t more_lines =
      ((ahead.end - ahead.at) / 64 + all_tiles - 1) / all_tiles - tile_lines;
  Tile<Products> tile;
  tile.k_tile = &k_tile;
  tile.scales = scales;
  tile.tables = &scratch.tables;
  tile.cursor.stride = inputs.stride;
  const std::int64_t fewest = k_tile.tokens / tiles, larger = k_tile.tokens % tiles;
  for (tile.output = 0; tile.output < 64; tile.output += kTileOutputs) {
    Products::point_at_codes(panel, k_tile, tile.output, scratch.codes, tile.cursor);
    std::int64_t count = 0;
    for (std::int64_t i = 0, first = 0; i < tiles; ++i, first += count) {
      count = fewest + (i < larger ? 1 : 0);
      tile.first = first;
      tile.token = k_tile.token + first;
      tile.sums = scratch.sums + tile.output * k_tile.tokens + first * kTileOutputs;
      tile.cursor.inputs = inputs.bytes + first * inputs.stride;
      tile.cursor.ahead = ahead.take(tile_lines * 64);
      ahead.fetch(more_lines);
      if (k_tile.first == 0) begin_sums<kStart>(panel, tile, count);
      if (last) fetch_results(panel, tile, count);
      constexpr Codes kFirst = Products::kUnpacks ? Codes::packed : Codes::ready;
      (i == 0 ? tile_of<Products, kStart, kFirst>
              : tile_of<Products, kStart, Codes::ready>)(count)(panel, tile);
      if (last) finish_sums(panel, tile, count);
    }
  }
}

template <class Products, Start kStart>
void run_blocks(const IntPanel& panel, Scales scales) {
  static_assert(sizeof(BlockScratch<Products>) <= kIntScratchBytes);
  auto& scratch = *reinterpret_cast<BlockScratch<Products>*>(panel.scratch);
  constexpr std::int64_t kTile = Products::kTokens, kColumns = Products::kKTileColumns;
  constexpr std::int64_t kBlockTiles = Products::kBlockTokens / kTile;
  const std::int64_t tiles = (panel.tokens + kTile - 1) / kTile;
  const std::int64_t blocks = (tiles + kBlockTiles - 1) / kBlockTiles;
  KTile k_tile;
  for (std::int64_t b = 0; b < blocks; ++b) {
    k_tile.token = tiles * b / blocks * kTile;
    const std::int64_t end = tiles * (b + 1) / blocks * kTile;
    k_tile.tokens = (end < panel.tokens ? end : panel.tokens) - k_tile.token;
    for (k_tile.first = 0; k_tile.first < panel.columns; k_tile.first += kColumns) {
      const std::int64_t left = panel.columns - k_tile.first;
      k_tile.columns = left < kColumns ? left : kColumns;
      run_k_tile<Products, kStart>(panel, k_tile, scales, scratch);
    }
  }
}

template <class Products, Start kStart>
void run_row_blocks(const IntPanel& panel) {
  run_blocks<Products, kStart>(panel, Scales::rows);
}

// For all combinations of scales except rows on both sides.
template <class Products, Start kStart>
void run_group_blocks(const IntPanel& panel) {
  const Scales scales = panel.groups_a_token_scale == 0 ? Scales::weights
                        : panel.group_scales == nullptr ? Scales::tokens
                                                        : Scales::both;
  if constexpr (kStart == Start::zeros) {
    if (panel.zeros == nullptr) return run_blocks<Products, Start::zero>(panel, scales);
  }
  run_blocks<Products, kStart>(panel, scales);
}

// Few tokens use the AVX2 kernels of their own.
template <std::int64_t kFewest, auto kKernel, void (*kMany)(const IntPanel&)>
void by_token_count(const IntPanel& panel) noexcept {
  (panel.tokens < kFewest ? few_tokens_avx2().*kKernel : kMany)(panel);
}

template <class Level>
void run_table_blocks(const IntPanel& panel) {
  if (panel.zero > kSmallTableZero) {
    return run_group_blocks<typename Level::Table, Level::kBytes>(panel);
  }
  if (panel.group == 16) return run_group_blocks<typename Level::HalfTable, Start::zeros>(panel);
  run_group_blocks<typename Level::SmallTable, Start::zeros>(panel);
}

template <class Level>
void run_bits4_blocks(const IntPanel& panel) {
  if (panel.group == 32) return run_group_blocks<typename Level::ShortBits4, Start::zeros>(panel);
  run_group_blocks<typename Level::template Bits<4>, Start::zeros>(panel);
}

// The integer matmuls of a level. Level has:
//   Signed, Bytes, Bits<kBits>   products of int8, uint8 and fewer bits
//   ShortBits4                   products of 4 bits in groups of 32 columns
//   Table, SmallTable            products of 4-bit codes with a table, or with one up to 24
//   HalfTable                    the latter in groups of 16 columns
//   kSigned, kBytes              start values of the sums of Signed, and of Bytes and Table
template <class Level>
constexpr MatmulKernels block_kernels(Isa isa, const char* tile) {
  using Signed = typename Level::Signed;
  using Bytes = typename Level::Bytes;
  using Kernels = MatmulKernels;
  constexpr std::int64_t kFew8 = kFewestOf8Bits, kFewBits = kFewestOfFewerBits;
  constexpr Start kSigned = Level::kSigned;
  constexpr Start kBytes = Level::kBytes;
  return {.isa = isa,
          .int8_rows = by_token_count<kFew8, &Kernels::int8_rows, run_row_blocks<Signed, kSigned>>,
          .int8_groups =
              by_token_count<kFew8, &Kernels::int8_groups, run_group_blocks<Signed, kSigned>>,
          .uint8_rows = by_token_count<kFew8, &Kernels::uint8_rows, run_row_blocks<Bytes, kBytes>>,
          .uint8_groups =
              by_token_count<kFew8, &Kernels::uint8_groups, run_group_blocks<Bytes, kBytes>>,
          .bits4 = by_token_count<kFewBits, &Kernels::bits4, run_bits4_blocks<Level>>,
          .table4 = by_token_count<kFewBits, &Kernels::table4, run_table_blocks<Level>>,
          .bits3 = by_token_count<kFewBits, &Kernels::bits3,
                                  run_group_blocks<typename Level::template Bits<3>, Start::zeros>>,
          .bits2 = by_token_count<kFewBits, &Kernels::bits2,
                                  run_group_blocks<typename Level::template Bits<2>, Start::zeros>>,
          .int_tile = tile};
}

}  // namespace
}  // namespace leq::cpu
