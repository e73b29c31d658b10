// Options of the GPU backends.
#pragma once

#include <cstdint>

namespace leq {

// fast: tensor cores wherever possible, with results close to the CPU's. exact: only kernels whose
// results are bit-identical to the CPU's; models that lack such kernels are rejected.
enum class Arithmetic : std::uint8_t { fast, exact };

struct GpuOptions {
  std::uint64_t memory_cap = 0;  // limit of device memory in bytes; 0: all that is free
  Arithmetic arithmetic = Arithmetic::fast;
  // Ranks that share a model use consecutive devices, one each.
  int rank = 0, ranks = 1;
};

}  // namespace leq
