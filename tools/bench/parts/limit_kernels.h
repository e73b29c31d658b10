// Loops that only read memory or only multiply, for each instruction set. LimitMeter times them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu_features.h"

namespace leq::cpu {

struct LimitKernels {
  // Adds up 64-byte aligned memory; `bytes` must be a multiple of 512. The second loop prefetches.
  // Both exist because the faster one differs from machine to machine.
  using Read = std::uint64_t (*)(const std::byte* data, std::size_t bytes) noexcept;
  std::array<Read, 2> read = {};
  // `rounds` rounds of independent multiply-adds in registers; using the result keeps them alive.
  std::int32_t (*int8)(std::int64_t rounds) noexcept;
  // Like int8, for codes of 2, 3 and 4 bits times int8, if an exact instruction sequence is faster
  // than int8's; otherwise null. With fewer bits, a 16-bit sum holds more products.
  using Products = std::int32_t (*)(std::int64_t rounds) noexcept;
  std::array<Products, 3> codes = {};
  float (*f32)(std::int64_t rounds) noexcept;
  double (*f64)(std::int64_t rounds) noexcept;
  double int8_operations = 0;  // per round; a multiply and an add count as two
  std::array<double, 3> codes_operations = {};
  double f32_operations = 0;
  double f64_operations = 0;
  const char* int8_name = "";
  const char* codes_name = "";
  const char* f32_name = "";
};

struct LimitLevel {
  Isa isa;
  const LimitKernels& (*kernels)();
};
// All levels of this processor family. Each of limits/x86, limits/arm and limits/generic defines a
// list, and the build compiles one of them.
std::span<const LimitLevel> limit_levels();
// The loops of a level, which this processor must support.
const LimitKernels& limit_kernels(Isa isa);

const LimitKernels& limit_kernels_portable();
const LimitKernels& limit_kernels_avx2();
const LimitKernels& limit_kernels_avxvnni();
const LimitKernels& limit_kernels_avx512();
const LimitKernels& limit_kernels_avx512vnni();
const LimitKernels& limit_kernels_avx512amx();
const LimitKernels& limit_kernels_neon();
const LimitKernels& limit_kernels_dotprod();
const LimitKernels& limit_kernels_i8mm();

}  // namespace leq::cpu
