// Limits of level dotprod: int8 products by sdot, f32 by fmla.
#include "eval/limits/arm/limit_floats.h"
#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {
constexpr std::size_t kReadVector = 16;
#include "eval/limits/limit_read.inc"

// Written in assembly, because the compiler would compute equal products only once.
std::int32_t int8_products(std::int64_t rounds) noexcept {
  using Bytes = Register<std::int8_t, 16>;
  const Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  return chains<std::int32_t, 16, kChains>(rounds, [&](Register<std::int32_t, 16>& sum) {
    asm volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(y));
  });
}

constexpr LimitKernels kKernels = {.read = kRead,
                                   .int8 = int8_products,
                                   .f32 = f32_products,
                                   .f64 = f64_products,
                                   .int8_operations = kChains * 16 * 2.0,
                                   .f32_operations = kChains * 4 * 2.0,
                                   .f64_operations = kChains * 2 * 2.0,
                                   .int8_name = "sdot",
                                   .f32_name = "fmla"};

}  // namespace

const LimitKernels& limit_kernels_dotprod() { return kKernels; }

}  // namespace leq::cpu
