// Limits of AVX-512 with VNNI: int8 products by vpdpbusd, f32 by vfmadd, 512 bits wide.
#include <immintrin.h>

#include "eval/limits/limit_kernels.h"
#include "eval/limits/x86/limit_floats_avx512.h"

namespace leq::cpu {
namespace {
constexpr std::size_t kReadVector = 64;
#include "eval/limits/limit_read.inc"

constexpr int kChains = 24;  // hides a latency of 4 or 5 cycles at 2 instructions per cycle

// A single block of assembly. In a loop of intrinsics, g++ 12 keeps the 24 sums in memory, which
// reached 38 % of the rate of this block, less than the rate of the matmul itself.
std::int32_t int8_products(std::int64_t rounds) noexcept {
  std::int32_t sum = 0;
  asm volatile(
      "vpbroadcastb %2, %%zmm30\n"
      "vpbroadcastb %3, %%zmm31\n"
      ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vpxord %%zmm\\i, %%zmm\\i, %%zmm\\i\n"
      ".endr\n"
      "1:\n"
      ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vpdpbusd %%zmm31, %%zmm30, %%zmm\\i\n"
      ".endr\n"
      "decq %0\n"
      "jnz 1b\n"
      ".irp i, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vpaddd %%zmm\\i, %%zmm0, %%zmm0\n"
      ".endr\n"
      "vmovd %%xmm0, %1\n"
      : "+r"(rounds), "=r"(sum)
      : "r"(3), "r"(-5)
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",
        "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31");
  return sum;
}

constexpr LimitKernels kKernels = {.read = kRead,
                                   .int8 = int8_products,
                                   .f32 = f32_products,
                                   .f64 = f64_products,
                                   .int8_operations = kChains * 64 * 2.0,
                                   .f32_operations = kFloatChains * 16 * 2.0,
                                   .f64_operations = kFloatChains * 8 * 2.0,
                                   .int8_name = "vpdpbusd",
                                   .f32_name = "vfmadd"};

}  // namespace

const LimitKernels& limit_kernels_avx512vnni() { return kKernels; }

}  // namespace leq::cpu
