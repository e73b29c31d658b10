// Limits of level NEON: int8 products by smlal into 16 bits, f32 by fmla.
#include "eval/limits/arm/limit_floats.h"
#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {
constexpr std::size_t kReadVector = 16;
#include "eval/limits/limit_read.inc"

// Written in assembly, because the compiler would compute equal products only once.
std::int32_t int8_products(std::int64_t rounds) noexcept {
  using Bytes = Register<std::int8_t, 8>;
  const Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  return chains<std::int16_t, 16, kChains>(rounds, [&](Register<std::int16_t, 16>& sum) {
    asm volatile("smlal %0.8h, %1.8b, %2.8b" : "+w"(sum) : "w"(x), "w"(y));
  });
}

constexpr LimitKernels kKernels = {.read = kRead,
                                   .int8 = int8_products,
                                   .f32 = f32_products,
                                   .f64 = f64_products,
                                   .int8_operations = kChains * 8 * 2.0,
                                   .f32_operations = kChains * 4 * 2.0,
                                   .f64_operations = kChains * 2 * 2.0,
                                   .int8_name = "smlal",
                                   .f32_name = "fmla"};

}  // namespace

const LimitKernels& limit_kernels_neon() { return kKernels; }

}  // namespace leq::cpu
