// Limits of level NEON: int8 products by smlal into 16 bits.
#include "tools/bench/parts/arm/limit_steps.h"

namespace leq::cpu {
namespace {

struct CodeStep {
  using Bytes = Register<std::int8_t, 8>;
  Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  __attribute__((always_inline)) void run(Register<std::int16_t, 16>& sum) const {
    asm volatile("smlal %0.8h, %1.8b, %2.8b" : "+w"(sum) : "w"(x), "w"(y));
  }
};

}  // namespace

const LimitKernels& limit_kernels_neon() {
  static constexpr LimitKernels kKernels = kernels_of<std::int16_t, CodeStep>("smlal", 8);
  return kKernels;
}

}  // namespace leq::cpu
