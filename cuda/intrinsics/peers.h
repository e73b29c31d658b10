// Words for memory that another device, or the host, reads and writes while a kernel runs. On
// hardware a store there is a store, which lands some time before what follows a fence; the
// emulator holds it back until then.
#pragma once

#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

// To memory of another device. What follows __threadfence_system is seen there after it.
template <class T>
__device__ __forceinline__ void push(T* there, const T& value) {
#ifdef __CUDACC__
  *there = value;
#else
  simt::push(there, &value, sizeof value);
#endif
}

// What another device pushed to memory of this one: not from the first cache.
template <class T>
__device__ __forceinline__ T read_pushed(const T* at) {
#ifdef __CUDACC__
  return __ldcg(at);
#else
  return *at;
#endif
}

// One word that tells others of something, wherever it lies. A fence goes before it.
__device__ __forceinline__ void signal(std::uint32_t* there, std::uint32_t value) {
#ifdef __CUDACC__
  *static_cast<volatile std::uint32_t*>(there) = value;
#else
  __atomic_store_n(there, value, __ATOMIC_RELEASE);
#endif
}
// A fence goes after it.
__device__ __forceinline__ std::uint32_t look(const std::uint32_t* at) {
#ifdef __CUDACC__
  return *static_cast<const volatile std::uint32_t*>(at);
#else
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
#endif
}

}  // namespace leq::LEQ_GPU
