// A panel times many tokens for the levels without 512-bit dot products. Blocks of tokens are
// multiplied by K tiles, whose codes and inputs are first converted to the form that the tile's
// instruction needs (matmul_products.h). Fewer tokens are limited by memory, so that conversion
// would not pay; all these levels then use the AVX2 kernels.
#pragma once

#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_products.h"

namespace leq::cpu {
namespace {

// Start values of int32 sums. none: 0; weights: -128 * the weights' sums, since inputs are q + 128;
// zero, zeros: -zero point * the inputs' sums, with one zero point or one per output.
enum class Start { none, weights, zero, zeros };
// The sides with group scales. rows: no side, so that one int32 sum is over all columns.
enum class Scales { rows, weights, tokens, both };

// Start values and scales of the groups in a K tile.
template <class Products>
struct GroupTables {
  static constexpr std::int64_t kGroups = Products::kKTileColumns / 32;
  static constexpr std::int64_t kTokens = Products::kBlockTokens;
  alignas(64) float scales[kGroups][64];         // scales of the weights
  alignas(64) std::int32_t starts[kGroups][64];  // -128 * sums, or -zero points
  // Copied from the inputs' rows, which are far apart. For Start::zero, sums are times -zero.
  alignas(64) float token_scales[kGroups][kTokens];
  alignas(64) std::int32_t token_sums[kGroups][kTokens];
};

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
    return L::sub32(L::repeat32(0), L::times_128(L::from_i32(panel.row_sums + output)));
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
        c[m][j] = L::load(starts + j * L::kOutputs);
      } else if constexpr (kStart == Start::zero) {
        c[m][j] = L::repeat_quad(token_sums + m);
      } else {
        c[m][j] = L::products16(L::load(starts + j * L::kOutputs), L::repeat_quad(token_sums + m));
      }
    }
  }
}

// f = fma(float(sum), weight scale * token scale, f) for the sums of a tile at the end of group `g`
// of a K tile.
template <Scales kScales, class Products, int M>
inline __attribute__((always_inline)) void fold(const Tile<Products>& tile, std::int64_t g,
                                                typename Products::Ints (&c)[M][2]) {
  using L = typename Products::Lanes;
  typename L::Floats by_weight[2] = {}, by_token = {};
  if constexpr (kScales != Scales::tokens) {
    by_weight[0] = L::load_floats(tile.tables->scales[g] + tile.output);
    by_weight[1] = L::load_floats(tile.tables->scales[g] + tile.output + L::kOutputs);
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
      L::store(sums, L::add32(L::load(sums), c[m][j]));
    }
  }
}

template <Start kStart, Scales kScales, class Products>
void begin_sums(const IntPanel& panel, const Tile<Products>& tile, std::int64_t tokens) {
  using L = typename Products::Lanes;
  float* sums = tile.sums;
  for (std::int64_t m = 0; m < tokens; ++m) {
    for (int j = 0; j < 2; ++j, sums += L::kOutputs) {
      constexpr Start kHere = kScales == Scales::rows ? kStart : Start::none;
      L::store(sums, row_start<L, kHere>(panel, tile.token + m, tile.output + j * L::kOutputs));
    }
  }
}

// y = fma(f, weight scale * token scale, bias), without the scales of groups.
template <Scales kScales, class Products>
void finish_sums(const IntPanel& panel, const Tile<Products>& tile, std::int64_t tokens) {
  using L = typename Products::Lanes;
  const float* sums = tile.sums;
  for (std::int64_t m = 0; m < tokens; ++m) {
    const std::int64_t token = tile.token + m;
    for (int j = 0; j < 2; ++j, sums += L::kOutputs) {
      const int output = tile.output + j * L::kOutputs;
      typename L::Floats f;
      if constexpr (kScales == Scales::rows) f = L::to_floats(L::load(sums));
      if constexpr (kScales != Scales::rows) f = L::load_floats(sums);
      auto scale = L::repeat(1.0f);
      if constexpr (kScales == Scales::rows || kScales == Scales::weights) {
        scale = L::repeat(panel.token_scales[token * panel.token_scale_stride]);
      }
      if constexpr (kScales == Scales::rows || kScales == Scales::tokens) {
        scale = L::mul(scale, L::load_floats(panel.row_scales + output));
      }
      f = panel.bias != nullptr ? L::fma(f, scale, L::load_floats(panel.bias + output))
                                : L::mul(f, scale);
      L::store_floats(panel.y + token * panel.y_stride + output, f);
    }
  }
}

// Multiplies M tokens x a register pair over one K tile.
template <class Products, Start kStart, Scales kScales, Codes kCodes, int M>
void k_tile_kernel(const IntPanel& panel, const Tile<Products>& tile) {
  Cursor cursor = tile.cursor;
  typename Products::Ints c[M][2];
  if constexpr (kScales == Scales::rows) {
    start_group<Start::none>(tile, 0, c);
    Products::template add<kCodes>(cursor, tile.k_tile->columns, c);
    add_sums<typename Products::Lanes>(tile.sums, c);
  } else {
    const std::int64_t group = panel.group;
    std::int64_t left = tile.k_tile->columns;
    for (std::int64_t g = 0; left > 0; left -= group, ++g) {
      start_group<kStart>(tile, g, c);
      Products::template add<kCodes>(cursor, group < left ? group : left, c);
      fold<kScales>(tile, g, c);
    }
  }
}

// The kernel for a tile of `tokens` tokens: at least 3, because a block has four or more.
template <class Products>
using KTileKernel = void (*)(const IntPanel&, const Tile<Products>&);
template <class Products, Start kStart, Scales kScales, Codes kCodes, int M = 3>
KTileKernel<Products> tile_of(std::int64_t tokens) {
  if constexpr (M < Products::kTokens) {
    if (tokens > M) return tile_of<Products, kStart, kScales, kCodes, M + 1>(tokens);
  }
  return k_tile_kernel<Products, kStart, kScales, kCodes, M>;
}

template <Start kStart, Scales kScales, class Products>
void fill_tables(const IntPanel& panel, const KTile& k_tile, GroupTables<Products>& tables) {
  using L = typename Products::Lanes;
  if constexpr (kScales == Scales::rows) return;
  const std::int64_t first = k_tile.first / panel.group;
  for (std::int64_t k = 0, g = 0; k < k_tile.columns; k += panel.group, ++g) {
    for (int output = 0; output < 64; output += L::kOutputs) {
      if constexpr (kScales != Scales::tokens) {
        const auto scale = L::from_f16(panel.group_scales + (first + g) * 64 + output);
        L::store_floats(tables.scales[g] + output, L::mul(scale, L::repeat(panel.scale_mul)));
      }
      if constexpr (kStart == Start::weights) {
        const auto sums = L::from_i16(panel.group_sums + (first + g) * 64 + output);
        L::store(tables.starts[g] + output, L::sub32(L::repeat32(0), L::times_128(sums)));
      } else if constexpr (kStart == Start::zeros) {
        const auto zero = L::from_u8(panel.zeros + (first + g) * panel.zero_stride + output);
        L::store(tables.starts[g] + output, L::sub16(L::repeat32(0), zero));
      }
    }
  }
}

template <Start kStart, Scales kScales, class Products>
void fill_token_tables(const IntPanel& panel, const KTile& k_tile, GroupTables<Products>& tables) {
  if constexpr (kScales == Scales::rows) return;
  const std::int64_t first = k_tile.first / panel.group;
  const std::int64_t groups = (k_tile.columns + panel.group - 1) / panel.group;
  for (std::int64_t g = 0; g < groups; ++g) {
    if constexpr (kScales != Scales::weights) {
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

template <class Products, Start kStart, Scales kScales>
void run_k_tile(const IntPanel& panel, const KTile& k_tile, BlockScratch<Products>& scratch) {
  using L = typename Products::Lanes;
  constexpr int kTileOutputs = 2 * L::kOutputs;
  fill_tables<kStart, kScales>(panel, k_tile, scratch.tables);
  fill_token_tables<kStart, kScales>(panel, k_tile, scratch.tables);
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
      if (k_tile.first == 0) begin_sums<kStart, kScales>(panel, tile, count);
      if (last) fetch_results(panel, tile, count);
      constexpr Codes kFirst = Products::kUnpacks ? Codes::packed : Codes::ready;
      (i == 0 ? tile_of<Products, kStart, kScales, kFirst>
              : tile_of<Products, kStart, kScales, Codes::ready>)(count)(panel, tile);
      if (last) finish_sums<kScales>(panel, tile, count);
    }
  }
}

template <class Products, Start kStart, Scales kScales>
void run_blocks(const IntPanel& panel) {
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
      run_k_tile<Products, kStart, kScales>(panel, k_tile, scratch);
    }
  }
}

// For all combinations of scales except rows on both sides. Weights below 8 bits always have group
// scales.
template <class Products, Start kStart>
void run_groups_from(const IntPanel& panel) {
  if (panel.groups_a_token_scale == 0) {
    return run_blocks<Products, kStart, Scales::weights>(panel);
  }
  if constexpr (Products::kCodeBits == 8) {
    if (panel.group_scales == nullptr) return run_blocks<Products, kStart, Scales::tokens>(panel);
  }
  run_blocks<Products, kStart, Scales::both>(panel);
}

template <class Products, Start kStart>
void run_group_blocks(const IntPanel& panel) {
  if constexpr (kStart == Start::zeros) {
    if (panel.zeros == nullptr) return run_groups_from<Products, Start::zero>(panel);
  }
  run_groups_from<Products, kStart>(panel);
}

// The fewest tokens for which a block is faster. Below 8 bits, a block with one tile of four tokens
// is faster already, because it unpacks codes once instead of twice.
constexpr std::int64_t kFewestOf8Bits = 5, kFewestOfFewerBits = 4;
template <std::int64_t kFewest, void (*kFew)(const IntPanel&) noexcept,
          void (*kMany)(const IntPanel&)>
void by_token_count(const IntPanel& panel) noexcept {
  (panel.tokens < kFewest ? kFew : kMany)(panel);
}

// The kernel table of a level. Level has:
//   Signed, Bytes, Bits<kBits>   products of int8, uint8 and fewer bits
//   kSigned, kBytes              start values of the sums of Signed and Bytes
template <class Level>
constexpr MatmulKernels block_kernels(Isa isa, const char* tile) {
  using Signed = typename Level::Signed;
  using Bytes = typename Level::Bytes;
  constexpr Start kSigned = Level::kSigned;
  constexpr Start kBytes = Level::kBytes;
  MatmulKernels kernels;
  kernels.isa = isa;
  kernels.int8_rows =
      by_token_count<kFewestOf8Bits, int8_rows_avx2, run_blocks<Signed, kSigned, Scales::rows>>;
  kernels.int8_groups =
      by_token_count<kFewestOf8Bits, int8_groups_avx2, run_group_blocks<Signed, kSigned>>;
  kernels.uint8_rows =
      by_token_count<kFewestOf8Bits, uint8_rows_avx2, run_blocks<Bytes, kBytes, Scales::rows>>;
  kernels.uint8_groups =
      by_token_count<kFewestOf8Bits, uint8_groups_avx2, run_group_blocks<Bytes, kBytes>>;
  kernels.bits4 = by_token_count<kFewestOfFewerBits, bits4_avx2,
                                 run_group_blocks<typename Level::template Bits<4>, Start::zeros>>;
  kernels.bits3 = by_token_count<kFewestOfFewerBits, bits3_avx2,
                                 run_group_blocks<typename Level::template Bits<3>, Start::zeros>>;
  kernels.bits2 = by_token_count<kFewestOfFewerBits, bits2_avx2,
                                 run_group_blocks<typename Level::template Bits<2>, Start::zeros>>;
  kernels.f32 = f32_avx2;
  kernels.f16 = f16_avx2;
  kernels.bf16 = bf16_avx2;
  kernels.int_tile = tile;
  kernels.float_tile = "3x2";
  return kernels;
}

}  // namespace
}  // namespace leq::cpu
