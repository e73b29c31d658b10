// Each kernel has one source and two builds: nvcc compiles it to a CUDA kernel, g++ to a function
// that the emulator runs (sim/emulator.h). Only this file and ptx.h distinguish the builds. Kernels
// may use the functions of sim/vocabulary.h and ptx.h, LEQ_SHARED, LEQ_DYNAMIC_SHARED, LEQ_BOUNDS;
// no inline assembly, cooperative groups, or warp functions without _sync (docs/cuda.md).
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include <cmath>

// Marks a struct of arguments that threads read in place instead of copying it.
#define LEQ_GRID_CONSTANT __grid_constant__
// LEQ_SHARED(float[32], sums) defines a variable in the block's shared memory.
#define LEQ_SHARED(type, name) __shared__ ::simt::Same<type> name
// LEQ_DYNAMIC_SHARED(float, tile) defines float* tile, the launch's dynamic shared memory.
#define LEQ_DYNAMIC_SHARED(type, name)                                 \
  extern __shared__ __align__(128) unsigned char leq_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(leq_dynamic_shared)
// Must be the first statement of a kernel, with the number of threads in its __launch_bounds__.
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
// Each lambda expression, and hence each position in the source, has a distinct address.
template <class Lambda>
const void* call_site(Lambda) {
  static const char place = 0;
  return &place;
}
#endif

}  // namespace simt
