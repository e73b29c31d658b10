// Accesses to memory that another device or the host reads and writes while a kernel is running. On
// hardware such a store is an ordinary store, which becomes visible at some time before stores that
// follow a fence; the emulator delays it until the fence.
#pragma once

#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

// Stores to another device's memory; visible there before stores after __threadfence_system.
template <class T>
__device__ __forceinline__ void push(T* there, const T& value) {
#ifdef __CUDACC__
  *there = value;
#else
  simt::push(there, &value, sizeof value);
#endif
}

// Reads what another device pushed to this device's memory, bypassing the L1 cache.
template <class T>
__device__ __forceinline__ T read_pushed(const T* at) {
#ifdef __CUDACC__
  return __ldcg(at);
#else
  return *at;
#endif
}

// Stores one flag word in memory of any device. A fence must precede it.
__device__ __forceinline__ void signal(std::uint32_t* there, std::uint32_t value) {
#ifdef __CUDACC__
  *static_cast<volatile std::uint32_t*>(there) = value;
#else
  __atomic_store_n(there, value, __ATOMIC_RELEASE);
#endif
}
// Reads a flag word. A fence must follow it.
__device__ __forceinline__ std::uint32_t look(const std::uint32_t* at) {
#ifdef __CUDACC__
  return *static_cast<const volatile std::uint32_t*>(at);
#else
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
#endif
}

}  // namespace leq::LEQ_GPU
