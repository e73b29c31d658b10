// The vendor library's int8 matmul as a reference; the engine never uses it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::bench {

// Returns microseconds for the int32 sums [T][N] of int8 [T][K] times [N][K]; 0 if the library is
// missing or does not support the shape. Launches use copies of the weights in turn, which fill
// about `rotated` bytes, as in IntLinear.
double library_gemm_us(std::int64_t tokens, std::int64_t outputs, std::int64_t columns,
                       std::size_t rotated, rt::Stream& stream);
bool has_library_gemm();

}  // namespace leq::LEQ_GPU::bench
