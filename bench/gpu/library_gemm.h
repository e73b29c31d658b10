// The vendor library's int8 matmul as a reference; the engine never uses it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::bench {

// Microseconds of int32 sums [T][N] of int8 [T][K] times [N][K]; 0 where the library does not
// offer the shape, or is not there. Weights in turn that fill about `rotated` bytes, as
// IntLinear's.
double library_gemm_us(std::int64_t tokens, std::int64_t outputs, std::int64_t columns,
                       std::size_t rotated, rt::Stream& stream);
bool has_library_gemm();

}  // namespace leq::LEQ_GPU::bench
