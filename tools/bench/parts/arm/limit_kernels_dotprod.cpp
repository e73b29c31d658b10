// Limits of level dotprod: int8 products by sdot.
#include "tools/bench/parts/arm/limit_steps.h"

namespace leq::cpu {
namespace {

struct CodeStep {
  using Bytes = Register<std::int8_t, 16>;
  Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  __attribute__((always_inline)) void run(Register<std::int32_t, 16>& sum) const {
    asm volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(y));
  }
};

}  // namespace

const LimitKernels& limit_kernels_dotprod() {
  static constexpr LimitKernels kKernels = kernels_of<std::int32_t, CodeStep>("sdot", 16);
  return kKernels;
}

}  // namespace leq::cpu
