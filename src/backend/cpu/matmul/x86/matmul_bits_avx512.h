// Group-scaled weights of fewer than 8 bits times int8 activations. A few tokens use the codes as
// they are stored in the panel; more tokens share a K tile that is unpacked to bytes.
#pragma once

#include "backend/cpu/matmul/x86/matmul_codes_avx512.h"
#include "backend/cpu/matmul/x86/matmul_groups_avx512.h"

namespace leq::cpu {
namespace {

template <class Bits, int kQuad, int M, Fetch kFetch>
inline __attribute__((always_inline)) void add_quad(const Planes& planes, const std::uint8_t* x,
                                                    std::int64_t stride, __m512i (&even)[M][4],
                                                    __m512i (&odd)[M][4]) {
  prefetch_share<Bits, kQuad, kFetch>(planes);
  __m512i input[M];
#pragma GCC unroll 3
  for (int m = 0; m < M; ++m) input[m] = broadcast_quad(x + m * stride + 4 * kQuad);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i codes = Bits::template code<kQuad>(planes.low + 64 * j, planes.third + 64 * j);
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) dot((kQuad % 2 == 0 ? even : odd)[m][j], codes, input[m]);
  }
}

// Computes a tile of M tokens x 64 outputs. Codes of odd quads are not shifted down in their bytes,
// so that their products are exactly 2^kShift times too large until the end of the group.
template <class Bits, int M, Fetch kFetch>
void bits_tile(const IntPanel& panel, const PanelKTile& k_tile) {
  const std::int64_t stride = panel.input_stride;
  const std::uint8_t* x = panel.inputs + k_tile.token * stride;
  std::int64_t group = 0;
  for (std::int64_t k = 0; k < panel.columns; ++group) {
    const std::int64_t stop = k + panel.group < panel.columns ? k + panel.group : panel.columns;
    __m512i even[M][4];
    __m512i odd[M][4];
    start_from_zeros(panel, k_tile, group, even);
    fetch_scales(panel.group_scales, group);
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) odd[m][j] = _mm512_setzero_si512();
    }
    for (; k < stop; k += kStepColumns, x += kStepColumns) {
      const Planes planes = planes_at<Bits>(panel, k);
      add_quad<Bits, 0, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 1, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 2, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 3, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 4, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 5, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 6, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 7, M, kFetch>(planes, x, stride, even, odd);
    }
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        even[m][j] = _mm512_add_epi32(even[m][j], _mm512_srai_epi32(odd[m][j], Bits::kShift));
      }
    }
    fold(
        panel, k_tile, group, [&](int output) { return weight_scale(panel, group, output); }, even,
        k_tile.sums);
  }
  finish_tile(panel, k_tile, M, 64);
}

constexpr std::int64_t kPackedTokens = 3;
// Fetch::once (Zen 5) was measured only for one token.
constexpr Fetch packed_fetch(Fetch best, int tokens) {
  return tokens > 1 && best == Fetch::once ? Fetch::twice : best;
}
template <class Bits, Fetch kBest>
constexpr KTileKernel kPackedTiles[] = {bits_tile<Bits, 1, packed_fetch(kBest, 1)>,
                                        bits_tile<Bits, 2, packed_fetch(kBest, 2)>,
                                        bits_tile<Bits, 3, packed_fetch(kBest, 3)>};
// Indexed by [best_fetch()][tokens - 1].
template <class Bits>
constexpr const KTileKernel* kPacked[] = {kPackedTiles<Bits, Fetch::twice>,
                                          kPackedTiles<Bits, Fetch::once>,
                                          kPackedTiles<Bits, Fetch::never>};

template <class Bits>
void run_packed(const IntPanel& panel) {
  PanelKTile k_tile;
  k_tile.sums = reinterpret_cast<float*>(panel.scratch);
  clear(k_tile.sums, panel.tokens * 64);
  kPacked<Bits>[static_cast<std::size_t>(panel.fetch)][panel.tokens - 1](panel, k_tile);
}

// Whether the first tile of few tokens, which unpacks weights while it multiplies, also stores them
// as bytes in the K tile for further tiles. Unpacking beforehand is slower: its stores took a
// quarter of the time of a block of 16 tokens.
enum class Unpacked { kept, dropped };
template <class Bits, Unpacked kUnpacked>
struct PackedColumns {
  template <int kQuad, int M>
  static inline __attribute__((always_inline)) void add_quad(const Planes& planes,
                                                             const std::uint8_t* x,
                                                             std::int64_t stride,
                                                             std::uint8_t* codes,
                                                             __m512i (&c)[M][4]) {
    prefetch_share<Bits, kQuad>(planes);
    // Registers unpacked at once: two or one, because for four there are not enough registers.
    constexpr bool kCrowded = Bits::kThirdPlane || kUnpacked == Unpacked::dropped;
    constexpr int kAtOnce = kCrowded && M > 5 ? 1 : 2;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j += kAtOnce) {
      __m512i weights[kAtOnce];
#pragma GCC unroll 2
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = 64 * (j + i);
        weights[i] = Bits::template code<kQuad>(planes.low + at, planes.third + at);
        if constexpr (kQuad % 2 == 1) weights[i] = _mm512_srli_epi16(weights[i], Bits::kShift);
        if constexpr (kUnpacked == Unpacked::kept) {
          _mm512_store_si512(codes + kQuad * 256 + at, weights[i]);
        } else {
          // A compiler barrier, because g++ 12 otherwise unpacks later quads first and spills sums.
          asm volatile("" ::: "memory");
        }
      }
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) {
        const __m512i input = broadcast_quad(x + m * stride + 4 * kQuad);
#pragma GCC unroll 2
        for (int i = 0; i < kAtOnce; ++i) dot(c[m][j + i], weights[i], input);
      }
    }
  }

  // If only 16 columns remain of 32, the inputs' padding, which is 0, is read too.
  template <int M, int J, Start kStart>
  static inline __attribute__((always_inline)) void add(const IntPanel& panel,
                                                        const PanelKTile& k_tile,
                                                        const TallColumns& tile,
                                                        __m512i (&c)[M][J]) {
    const std::int64_t done = tile.weights - k_tile.codes;  // bytes of the K tile; a column has 64
    std::uint8_t* codes = reinterpret_cast<GroupScratch*>(panel.scratch)->codes + done;
    std::int64_t column = k_tile.first + done / 64;
    const std::int64_t end = column + tile.steps * 16;
    const std::uint8_t* x = tile.inputs;
    for (; column < end; column += kStepColumns, x += kStepColumns, codes += kStepColumns * 64) {
      const Planes planes = planes_at<Bits>(panel, column);
      add_quad<0>(planes, x, tile.stride, codes, c);
      add_quad<1>(planes, x, tile.stride, codes, c);
      add_quad<2>(planes, x, tile.stride, codes, c);
      add_quad<3>(planes, x, tile.stride, codes, c);
      add_quad<4>(planes, x, tile.stride, codes, c);
      add_quad<5>(planes, x, tile.stride, codes, c);
      add_quad<6>(planes, x, tile.stride, codes, c);
      add_quad<7>(planes, x, tile.stride, codes, c);
    }
  }
};

// First tiles of a block of one tile (4 to 6 tokens), and of several (3 to 6 tokens each).
template <class Bits, Start kStart, class Columns = PackedColumns<Bits, Unpacked::dropped>>
constexpr KTileKernel kOnlyTiles[] = {nullptr,
                                      nullptr,
                                      nullptr,
                                      k_tile_kernel<4, 4, kStart, Columns>,
                                      k_tile_kernel<5, 4, kStart, Columns>,
                                      k_tile_kernel<6, 4, kStart, Columns>};
template <class Bits, Start kStart, class Columns = PackedColumns<Bits, Unpacked::kept>>
constexpr KTileKernel kFirstTiles[] = {nullptr,
                                       nullptr,
                                       k_tile_kernel<3, 4, kStart, Columns>,
                                       k_tile_kernel<4, 4, kStart, Columns>,
                                       k_tile_kernel<5, 4, kStart, Columns>,
                                       k_tile_kernel<6, 4, kStart, Columns>};

template <class Bits, Start kStart>
void few_tokens_k_tile(const IntPanel& panel, const PanelKTile& k_tile, TokenBlock& block) {
  TileKernels kernels;
  kernels.first =
      panel.tokens <= kWideTokens ? kOnlyTiles<Bits, kStart> : kFirstTiles<Bits, kStart>;
  kernels.wide = unsigned_wide_tiles_avx512vnni(panel);
  run_tiles<kStart>(panel, k_tile, kernels, block);
}

template <class Bits>
void run_bits(const IntPanel& panel) {
  if (panel.tokens <= kPackedTokens) {
    run_packed<Bits>(panel);
    return;
  }
  std::uint8_t* const codes = reinterpret_cast<GroupScratch*>(panel.scratch)->codes;
  if (panel.tokens <= kFewTokens) {
    const auto run = panel.zeros == nullptr ? few_tokens_k_tile<Bits, Start::tokens>
                                            : few_tokens_k_tile<Bits, Start::zeros>;
    run_blocks(panel, run, [&](std::int64_t, std::int64_t) { return codes; });
    return;
  }
  run_blocks(panel, unsigned_k_tile_avx512vnni, [&](std::int64_t first, std::int64_t columns) {
    unpack<Bits>(panel, first, columns, NoZeros{}, codes);
    return codes;
  });
}

}  // namespace
}  // namespace leq::cpu
