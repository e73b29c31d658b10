// Options of the GPU backends.
#pragma once

#include <cstdint>

namespace leq {

// fast: tensor cores wherever they can be used, close to the CPU's results. exact: kernels whose
// results equal the CPU's bit for bit; models without such kernels are refused.
enum class Arithmetic : std::uint8_t { fast, exact };

struct GpuOptions {
  std::uint64_t memory_cap = 0;  // most bytes of its memory; 0 = what is free
  Arithmetic arithmetic = Arithmetic::fast;
  // Of ranks that share a model: each has the device after that of the rank before.
  int rank = 0, ranks = 1;
};

}  // namespace leq
