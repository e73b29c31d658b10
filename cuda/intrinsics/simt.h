// One kernel source, two builds: nvcc makes a CUDA kernel of it, g++ a function that the emulator
// runs (sim/emulator.h). Beside ptx.h the only file that knows which. What kernels may use:
// the words of sim/vocabulary.h and ptx.h, LEQ_SHARED, LEQ_DYNAMIC_SHARED and LEQ_BOUNDS; no inline
// assembly, no cooperative groups, no warp code without _sync (docs/cuda.md).
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include <cmath>

// A struct of arguments that all threads read where it lies.
#define LEQ_GRID_CONSTANT __grid_constant__
// LEQ_SHARED(float[32], sums): a variable of the block.
#define LEQ_SHARED(type, name) __shared__ ::simt::Same<type> name
// LEQ_DYNAMIC_SHARED(float, tile): float* tile, the memory that the launch asked for.
#define LEQ_DYNAMIC_SHARED(type, name)                                 \
  extern __shared__ __align__(128) unsigned char leq_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(leq_dynamic_shared)
// First statement of a kernel: as many threads as its __launch_bounds__.
#define LEQ_BOUNDS(threads) static_assert((threads) > 0)
#else
#include "cuda/sim/vocabulary.h"

#define LEQ_GRID_CONSTANT
#define LEQ_SHARED(type, name)                                          \
  auto& name = *static_cast<::simt::Same<type>*>(::simt::static_shared( \
      ::simt::call_site([] {}), sizeof(::simt::Same<type>), alignof(::simt::Same<type>)))
#define LEQ_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::simt::dynamic_shared())
#define LEQ_BOUNDS(threads) ::simt::require_bounds(threads)
#endif

namespace simt {

template <class T>
using Same = T;

#ifndef __CUDACC__
// An address of its own for each lambda expression, so for each place in the source.
template <class Lambda>
const void* call_site(Lambda) {
  static const char place = 0;
  return &place;
}
#endif

}  // namespace simt
