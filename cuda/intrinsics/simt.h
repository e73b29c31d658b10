// One kernel source, two builds: nvcc compiles it to a CUDA kernel, g++ to a function that the
// emulator runs (sim/emulator.h). Only this file and ptx.h distinguish the two. Kernels may use:
// the functions of sim/vocabulary.h and ptx.h, LEQ_SHARED, LEQ_DYNAMIC_SHARED and LEQ_BOUNDS; no
// inline assembly, no cooperative groups, no warp code without _sync (docs/cuda.md).
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include <cmath>

// For a struct of arguments that threads read in place, without a copy.
#define LEQ_GRID_CONSTANT __grid_constant__
// LEQ_SHARED(float[32], sums): a variable in the block's shared memory.
#define LEQ_SHARED(type, name) __shared__ ::simt::Same<type> name
// LEQ_DYNAMIC_SHARED(float, tile): float* tile, the dynamic shared memory of the launch.
#define LEQ_DYNAMIC_SHARED(type, name)                                 \
  extern __shared__ __align__(128) unsigned char leq_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(leq_dynamic_shared)
// First statement of a kernel: the same number of threads as its __launch_bounds__.
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
// A distinct address for each lambda expression, and so for each place in the source.
template <class Lambda>
const void* call_site(Lambda) {
  static const char place = 0;
  return &place;
}
#endif

}  // namespace simt
