// Limits of AVX-VNNI: int8 products by vpdpbusd, 256 bits wide; the rest as for AVX2.
#include "eval/limits/limit_chains.h"
#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {

constexpr int kChains = 12;  // hides a latency of 4 or 5 cycles at 2 instructions per cycle

std::int32_t int8_products(std::int64_t rounds) noexcept {
  using Bytes = Register<std::int8_t, 32>;
  const Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  return chains<std::int32_t, 32, kChains>(rounds, [&](Register<std::int32_t, 32>& sum) {
    asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
  });
}

}  // namespace

const LimitKernels& limit_kernels_avxvnni() {
  static const LimitKernels kKernels = [] {
    LimitKernels kernels = limit_kernels_avx2();
    kernels.int8 = int8_products;
    kernels.int8_operations = kChains * 32 * 2.0;
    kernels.int8_name = "vpdpbusd (256 bits)";
    kernels.codes = {};
    return kernels;
  }();
  return kKernels;
}

}  // namespace leq::cpu
