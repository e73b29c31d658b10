// int8 and uint8 weights times int8 activations with AVX-512 VNNI, if neither side has groups: one
// int32 sum for the whole row, held in registers from the first column to the last.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/x86/vnni.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kTallTokens = 12;

// Operands of a tile. The assembly below depends on the offsets of the members.
struct TallColumns {
  const std::uint8_t* weights = nullptr;  // [quads][256]; 32 outputs x 4 bytes of each are used
  const std::uint8_t* inputs = nullptr;   // [M][stride], beginning at the first column
  std::int64_t stride = 0;
  std::int64_t steps = 0;               // steps of 16 columns, > 0
  const std::uint8_t* ahead = nullptr;  // each step prefetches one line of it into L2
};
static_assert(offsetof(TallColumns, ahead) == 32);

// c [M][2 x 16] = starts [32] + weights (signed) x inputs (unsigned). Prompts of int8 spend most of
// their time here.
//
// One block of assembly, because g++ 12 copies and spills the 24 sums around such a loop. A quad of
// columns takes two loads of weights, M broadcasts by the load ports and 2 M products; each line of
// weights is prefetched into the L1 cache 2 KB ahead.
template <int M>
inline __attribute__((always_inline)) void tall_sums(const TallColumns& tile,
                                                     const std::int32_t* starts,
                                                     __m512i (&c)[M][2]) {
  static_assert(M >= 9 && M <= 12);
  __m512i none[3][2];
  __m512i(&c9)[2] = M > 9 ? c[M > 9 ? 9 : 0] : none[0];
  __m512i(&c10)[2] = M > 10 ? c[M > 10 ? 10 : 0] : none[1];
  __m512i(&c11)[2] = M > 11 ? c[M > 11 ? 11 : 0] : none[2];
  asm volatile(
      ".macro leq_start row, low, high\n"
      ".if \\row < %c[rows]\n"
      "vmovdqa64 (%[starts]), \\low\n"
      "vmovdqa64 64(%[starts]), \\high\n"
      ".endif\n"
      ".endm\n"
      ".macro leq_dot row, input, low, high\n"
      ".if \\row < %c[rows]\n"
      "vpbroadcastd \\input, %%zmm31\n"
      "vpdpbusd %%zmm29, %%zmm31, \\low\n"
      "vpdpbusd %%zmm30, %%zmm31, \\high\n"
      ".endif\n"
      ".endm\n"
      "leq_start 0, %0, %1\n"
      "leq_start 1, %2, %3\n"
      "leq_start 2, %4, %5\n"
      "leq_start 3, %6, %7\n"
      "leq_start 4, %8, %9\n"
      "leq_start 5, %10, %11\n"
      "leq_start 6, %12, %13\n"
      "leq_start 7, %14, %15\n"
      "leq_start 8, %16, %17\n"
      "leq_start 9, %18, %19\n"
      "leq_start 10, %20, %21\n"
      "leq_start 11, %22, %23\n"
      "movq (%[tile]), %%r9\n"
      "movq 8(%[tile]), %%rax\n"
      "movq 16(%[tile]), %%r11\n"
      "movq 24(%[tile]), %%r10\n"
      "movq 32(%[tile]), %%rdi\n"
      "leaq (%%r11,%%r11,2), %%r8\n"
      "leaq (%%rax,%%r8), %%rcx\n"
      "leaq (%%rcx,%%r8), %%rdx\n"
      "addq %%rdx, %%r8\n"
      "1:\n"
      ".irp quad, 0, 1, 2, 3\n"
      "vmovdqa64 256*\\quad(%%r9), %%zmm29\n"
      "vmovdqa64 256*\\quad+64(%%r9), %%zmm30\n"
      "prefetcht0 256*\\quad+2048(%%r9)\n"
      "prefetcht0 256*\\quad+2112(%%r9)\n"
      "leq_dot 0, \"4*\\quad(%%rax)\", %0, %1\n"
      "leq_dot 1, \"4*\\quad(%%rax,%%r11)\", %2, %3\n"
      "leq_dot 2, \"4*\\quad(%%rax,%%r11,2)\", %4, %5\n"
      "leq_dot 3, \"4*\\quad(%%rcx)\", %6, %7\n"
      "leq_dot 4, \"4*\\quad(%%rcx,%%r11)\", %8, %9\n"
      "leq_dot 5, \"4*\\quad(%%rcx,%%r11,2)\", %10, %11\n"
      "leq_dot 6, \"4*\\quad(%%rdx)\", %12, %13\n"
      "leq_dot 7, \"4*\\quad(%%rdx,%%r11)\", %14, %15\n"
      "leq_dot 8, \"4*\\quad(%%rdx,%%r11,2)\", %16, %17\n"
      "leq_dot 9, \"4*\\quad(%%r8)\", %18, %19\n"
      "leq_dot 10, \"4*\\quad(%%r8,%%r11)\", %20, %21\n"
      "leq_dot 11, \"4*\\quad(%%r8,%%r11,2)\", %22, %23\n"
      ".endr\n"
      "prefetcht1 (%%rdi)\n"
      "addq $64, %%rdi\n"
      "addq $1024, %%r9\n"
      "addq $16, %%rax\n"
      "addq $16, %%rcx\n"
      "addq $16, %%rdx\n"
      "addq $16, %%r8\n"
      "decq %%r10\n"
      "jnz 1b\n"
      ".purgem leq_start\n"
      ".purgem leq_dot\n"
      : "=&v"(c[0][0]), "=&v"(c[0][1]), "=&v"(c[1][0]), "=&v"(c[1][1]), "=&v"(c[2][0]),
        "=&v"(c[2][1]), "=&v"(c[3][0]), "=&v"(c[3][1]), "=&v"(c[4][0]), "=&v"(c[4][1]),
        "=&v"(c[5][0]), "=&v"(c[5][1]), "=&v"(c[6][0]), "=&v"(c[6][1]), "=&v"(c[7][0]),
        "=&v"(c[7][1]), "=&v"(c[8][0]), "=&v"(c[8][1]), "=&v"(c9[0]), "=&v"(c9[1]), "=&v"(c10[0]),
        "=&v"(c10[1]), "=&v"(c11[0]), "=&v"(c11[1])
      : [tile] "r"(&tile), [starts] "r"(starts), [rows] "i"(M)
      : "memory", "cc", "rax", "rcx", "rdx", "rdi", "r8", "r9", "r10", "r11", "xmm29", "xmm30",
        "xmm31");
}

// Start values: -128 * the weights' sums for signed weights, because inputs are q + 128; for
// unsigned weights -zero point * the inputs' sum.
template <bool kUnsigned, int M, int J>
inline __attribute__((always_inline)) void start(const IntPanel& panel, std::int64_t token,
                                                 int output, __m512i (&c)[M][J]) {
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) {
    __m512i value;
    if constexpr (kUnsigned) {
      value = zero_points(panel, 0, output + 16 * j);
    } else {
      value = start_value(_mm512_loadu_si512(panel.row_sums + output + 16 * j));
    }
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      c[m][j] = value;
      if constexpr (kUnsigned) {
        const int sum = panel.token_sums[(token + m) * panel.token_sum_stride];
        c[m][j] = _mm512_mullo_epi32(value, _mm512_set1_epi32(-sum));
      }
    }
  }
}

// Computes a tile of M tokens x 16 J outputs, beginning at `token` and `output`.
template <bool kUnsigned, int M, int J, Fetch kFetch = Fetch::twice>
void tile(const IntPanel& panel, std::int64_t token, int output) {
  __m512i c[M][J];
  start<kUnsigned>(panel, token, output, c);
  const std::uint8_t* w = panel.codes + output * 4;
  const std::uint8_t* x = panel.inputs + token * panel.input_stride;
  const std::int64_t stride = panel.input_stride;
  for (std::int64_t k = 0; k < panel.columns; k += 16) {
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad, w += 256, x += 4) {
      __m512i weights[J];
      load_weights<kFetch>(w, weights);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const __m512i input = broadcast_quad(x + m * stride);
#pragma GCC unroll 4
        for (int j = 0; j < J; ++j) {
          if constexpr (kUnsigned) {
            dot(c[m][j], weights[j], input);
          } else {
            dot(c[m][j], input, weights[j]);
          }
        }
      }
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      finish(panel, token + m, output + 16 * j, _mm512_cvtepi32_ps(c[m][j]));
    }
  }
}

// Computes a tile of M tokens x 32 outputs of signed weights.
template <int M>
void tall_tile(const IntPanel& panel, std::int64_t token, int output, const std::uint8_t* ahead) {
  fetch_results<M>(panel, token, output);
  alignas(64) std::int32_t starts[32];
  for (int j = 0; j < 32; j += 16) {
    _mm512_store_si512(starts + j, start_value(_mm512_loadu_si512(panel.row_sums + output + j)));
  }
  const TallColumns columns = {panel.codes + output * 4, panel.inputs + token * panel.input_stride,
                               panel.input_stride, panel.columns / 16, ahead};
  __m512i c[M][2];
  tall_sums<M>(columns, starts, c);
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    finish(panel, token + m, output, _mm512_cvtepi32_ps(c[m][0]));
    finish(panel, token + m, output + 16, _mm512_cvtepi32_ps(c[m][1]));
  }
}

using RowTile = void (*)(const IntPanel&, std::int64_t, int);
template <bool kUnsigned, Fetch kBest>
constexpr RowTile kWideOf[] = {tile<kUnsigned, 1, 4, wide_tile_fetch(kBest, 1)>,
                               tile<kUnsigned, 2, 4, wide_tile_fetch(kBest, 2)>,
                               tile<kUnsigned, 3, 4, wide_tile_fetch(kBest, 3)>,
                               tile<kUnsigned, 4, 4, wide_tile_fetch(kBest, 4)>,
                               tile<kUnsigned, 5, 4, wide_tile_fetch(kBest, 5)>,
                               tile<kUnsigned, 6, 4, wide_tile_fetch(kBest, 6)>};
// Indexed by [best_fetch()][tokens - 1].
template <bool kUnsigned>
constexpr const RowTile* kWide[] = {kWideOf<kUnsigned, Fetch::twice>,
                                    kWideOf<kUnsigned, Fetch::once>,
                                    kWideOf<kUnsigned, Fetch::never>};
using TallTile = void (*)(const IntPanel&, std::int64_t, int, const std::uint8_t*);
template <int M>
void unsigned_tall_tile(const IntPanel& panel, std::int64_t token, int output,
                        const std::uint8_t*) {
  tile<true, M, 2>(panel, token, output);
}
constexpr TallTile kTall[2][4] = {{tall_tile<9>, tall_tile<10>, tall_tile<11>, tall_tile<12>},
                                  {unsigned_tall_tile<9>, unsigned_tall_tile<10>,
                                   unsigned_tall_tile<11>, unsigned_tall_tile<12>}};

template <bool kUnsigned>
void run_rows(const IntPanel& panel) noexcept {
  const bool wide = panel.tokens <= kFewTokens;
  const std::int64_t most = wide ? kWideTokens : kTallTokens;
  const std::int64_t tiles = (panel.tokens + most - 1) / most;
  const auto fetch = static_cast<std::size_t>(panel.fetch);
  NextPanel next = next_panel(panel);
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = panel.tokens * i / tiles;
    const std::int64_t count = panel.tokens * (i + 1) / tiles - first;
    if (wide) {
      kWide<kUnsigned>[fetch][count - 1](panel, first, 0);
      continue;
    }
    const TallTile tall = kTall[kUnsigned][count - 9];
    tall(panel, first, 0, take_ahead(next, panel.columns * 4));
    tall(panel, first, 32, take_ahead(next, panel.columns * 4));
  }
}

}  // namespace
}  // namespace leq::cpu
