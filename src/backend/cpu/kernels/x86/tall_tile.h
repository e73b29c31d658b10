// The int32 sums of 9 to 12 tokens x 32 outputs over one group. Prompts spend most of their time in
// this function.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace leq::cpu {
namespace {

// Start values of the sums: 32 values, one per output, or kTallTokens values, one per token.
enum class TallStart { outputs, tokens };

// Operands of a tile. The assembly below depends on the offsets of the members.
struct TallColumns {
  const std::uint8_t* weights = nullptr;  // [quads][256]; 32 outputs x 4 bytes of each are used
  const std::uint8_t* inputs = nullptr;   // [M][stride], beginning at the first column
  std::int64_t stride = 0;
  std::int64_t steps = 0;               // steps of 16 columns, > 0
  const std::uint8_t* ahead = nullptr;  // each step prefetches one line of it into L2
};
static_assert(offsetof(TallColumns, ahead) == 32);

// c [M][2 x 16] = starts + weights x inputs. If start values are per output, inputs are unsigned
// and weights signed; otherwise weights are unsigned and inputs signed.
//
// One block of assembly, because g++ 12 copies and spills the 24 sums around such a loop. A quad of
// columns takes two loads of weights, M broadcasts by the load ports and 2 M products; each line of
// weights is prefetched into the L1 cache 2 KB ahead.
template <int M, TallStart kStart>
inline __attribute__((always_inline)) void tall_sums(const TallColumns& tile,
                                                     const std::int32_t* starts,
                                                     __m512i (&c)[M][2]) {
  static_assert(M >= 9 && M <= 12);
  __m512i none[3][2];
  __m512i(&c9)[2] = M > 9 ? c[M > 9 ? 9 : 0] : none[0];
  __m512i(&c10)[2] = M > 10 ? c[M > 10 ? 10 : 0] : none[1];
  __m512i(&c11)[2] = M > 11 ? c[M > 11 ? 11 : 0] : none[2];
  asm volatile(
      ".set leq_rows, %c[variant] / 2\n"
      ".set leq_tokens, %c[variant] & 1\n"
      ".macro leq_start row, low, high\n"
      ".if \\row < leq_rows\n"
      ".if leq_tokens\n"
      "vpbroadcastd 4*\\row(%[starts]), \\low\n"
      "vpbroadcastd 4*\\row(%[starts]), \\high\n"
      ".else\n"
      "vmovdqa64 (%[starts]), \\low\n"
      "vmovdqa64 64(%[starts]), \\high\n"
      ".endif\n"
      ".endif\n"
      ".endm\n"
      ".macro leq_dot row, input, low, high\n"
      ".if \\row < leq_rows\n"
      "vpbroadcastd \\input, %%zmm31\n"
      ".if leq_tokens\n"
      "vpdpbusd %%zmm31, %%zmm29, \\low\n"
      "vpdpbusd %%zmm31, %%zmm30, \\high\n"
      ".else\n"
      "vpdpbusd %%zmm29, %%zmm31, \\low\n"
      "vpdpbusd %%zmm30, %%zmm31, \\high\n"
      ".endif\n"
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
      : [tile] "r"(&tile), [starts] "r"(starts),
        [variant] "i"(2 * M + (kStart == TallStart::tokens ? 1 : 0))
      : "memory", "cc", "rax", "rcx", "rdx", "rdi", "r8", "r9", "r10", "r11", "xmm29", "xmm30",
        "xmm31");
}

}  // namespace
}  // namespace leq::cpu
