// 4-bit group-scaled weights times int8 activations. A few tokens take the nibbles straight from
// the panel; more tokens share a piece of the panel unpacked to bytes.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_groups_avx512.h"

namespace leq::cpu {
namespace {

// M tokens x 64 outputs, two quads of columns to a byte. The upper nibbles stay where they are, so
// their products are 16 times too large, exactly, until the end of the group.
template <int M, Scales kScales>
void nibble_tile(const IntPanel& panel, const Piece& piece) {
  const std::int64_t stride = panel.input_stride;
  const __m512i low_mask = _mm512_set1_epi8(15);
  const std::uint8_t* w = piece.codes;
  const std::uint8_t* x = panel.inputs + piece.token * stride;
  std::int64_t group = 0;
  for (std::int64_t k = 0; k < panel.columns; ++group) {
    const std::int64_t stop = k + panel.group < panel.columns ? k + panel.group : panel.columns;
    __m512i low[M][4];
    __m512i high[M][4];
    start<M, 4, true>(panel, piece, group, low);
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) high[m][j] = _mm512_setzero_si512();
    }
    for (; k < stop; k += 16) {
#pragma GCC unroll 2
      for (int pair = 0; pair < 2; ++pair, w += 256, x += 8) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          const __m512i both = _mm512_load_si512(w + 64 * j);
          prefetch(w + 64 * j + kPrefetchBytes);
          const __m512i first = _mm512_and_si512(both, low_mask);
          const __m512i second = _mm512_andnot_si512(low_mask, both);
#pragma GCC unroll 3
          for (int m = 0; m < M; ++m) {
            dot(low[m][j], first, broadcast_quad(x + m * stride));
            dot(high[m][j], second, broadcast_quad(x + m * stride + 4));
          }
        }
      }
    }
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        low[m][j] = _mm512_add_epi32(low[m][j], _mm512_srai_epi32(high[m][j], 4));
      }
    }
    fold<M, 4, kScales>(panel, piece, group, low);
  }
}

// [columns/8][64][4] bytes of two nibbles -> [columns/4][64][4] bytes.
void unpack(const std::uint8_t* nibbles, std::int64_t columns, std::uint8_t* codes) {
  const __m512i low_mask = _mm512_set1_epi8(15);
  for (std::int64_t k = 0; k < columns; k += 8, nibbles += 256, codes += 512) {
    for (int j = 0; j < 256; j += 64) {
      const __m512i both = _mm512_load_si512(nibbles + j);
      prefetch(nibbles + j + kPrefetchBytes);
      _mm512_store_si512(codes + j, _mm512_and_si512(both, low_mask));
      _mm512_store_si512(codes + j + 256, _mm512_and_si512(_mm512_srli_epi16(both, 4), low_mask));
    }
  }
}

constexpr std::int64_t kNibbleTokens = 3;
template <Scales kScales>
constexpr PieceTile kNibbleTiles[] = {nullptr, nibble_tile<1, kScales>, nibble_tile<2, kScales>,
                                      nibble_tile<3, kScales>};

template <Scales kScales>
void run(const IntPanel& panel) {
  Block block;
  block.sums = reinterpret_cast<float*>(panel.scratch);
  if (panel.tokens <= kNibbleTokens) {
    block.tokens = panel.tokens;
    clear(block.sums, panel.tokens * 64);
    Piece piece;
    piece.codes = panel.codes;
    piece.sums = block.sums;
    kNibbleTiles<kScales>[panel.tokens](panel, piece);
    finish_block(panel, block);
    return;
  }
  auto* const codes = reinterpret_cast<std::uint8_t*>(block.sums + kBlockTokens * 64);
  const std::int64_t blocks = (panel.tokens + kBlockTokens - 1) / kBlockTokens;
  for (std::int64_t b = 0; b < blocks; ++b) {
    block.token = panel.tokens * b / blocks;
    block.tokens = panel.tokens * (b + 1) / blocks - block.token;
    clear(block.sums, block.tokens * 64);
    Piece piece;
    piece.codes = codes;
    for (std::int64_t k = 0; k < panel.columns; k += kPieceColumns) {
      piece.first = k;
      piece.columns = panel.columns - k < kPieceColumns ? panel.columns - k : kPieceColumns;
      unpack(panel.codes + k * 32, piece.columns, codes);
      run_piece<true, kScales>(panel, piece, block);
    }
    finish_block(panel, block);
  }
}

}  // namespace

void int4_groups_avx512vnni(const IntPanel& panel) noexcept {
  if (panel.groups_a_token_scale == 0) {
    run<Scales::weights>(panel);
  } else {
    run<Scales::both>(panel);
  }
}

}  // namespace leq::cpu
