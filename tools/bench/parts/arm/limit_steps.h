// The multiply-add steps of 64-bit ARM, in registers of 16 bytes.
#pragma once

#include "tools/bench/parts/limit_kernels.h"

namespace leq::cpu {

const LimitKernels& limit_kernels_neon();
const LimitKernels& limit_kernels_dotprod();
const LimitKernels& limit_kernels_i8mm();

namespace {

constexpr int kChains = 16;  // hides a latency of 4 cycles at 4 instructions per cycle

struct FloatStep {
  Register<float, 16> x = Register<float, 16>{} + 0.5f;
  __attribute__((always_inline)) void run(Register<float, 16>& sum) const {
    asm volatile("fmla %0.4s, %1.4s, %1.4s" : "+w"(sum) : "w"(x));
  }
};
struct DoubleStep {
  Register<double, 16> x = Register<double, 16>{} + 0.5;
  __attribute__((always_inline)) void run(Register<double, 16>& sum) const {
    asm volatile("fmla %0.2d, %1.2d, %1.2d" : "+w"(sum) : "w"(x));
  }
};

// A level whose instruction adds `each` products of codes to a register of sums.
template <class Sum, class Step>
constexpr LimitKernels kernels_of(const char* name, std::size_t each) {
  return {.read = kReads<16>,
          .int8 = products<std::int32_t, 16, kChains, Step, Sum>(name, each),
          .f32 = products<float, 16, kChains, FloatStep>("fmla", 4),
          .f64 = products<double, 16, kChains, DoubleStep>("fmla", 2)};
}

}  // namespace
}  // namespace leq::cpu
