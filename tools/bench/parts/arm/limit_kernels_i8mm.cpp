// Limits of level i8mm: int8 products by smmla; the rest as for NEON.
#include "eval/limits/limit_chains.h"
#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {

constexpr int kChains = 16;

// Written in assembly, because the compiler would compute equal products only once.
std::int32_t int8_products(std::int64_t rounds) noexcept {
  using Bytes = Register<std::int8_t, 16>;
  const Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  return chains<std::int32_t, 16, kChains>(rounds, [&](Register<std::int32_t, 16>& sum) {
    asm volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(y));
  });
}

}  // namespace

const LimitKernels& limit_kernels_i8mm() {
  static const LimitKernels kKernels = [] {
    LimitKernels kernels = limit_kernels_dotprod();
    kernels.int8 = int8_products;
    kernels.int8_operations = kChains * 32 * 2.0;
    kernels.int8_name = "smmla";
    return kernels;
  }();
  return kKernels;
}

}  // namespace leq::cpu
