// The CUDA functions and types that kernels use, for g++. Each has the semantics of the CUDA
// programming guide, implemented by the emulator. Included only by simt.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda/sim/emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define threadIdx (simt::thread_index())
#define blockIdx (simt::block_index())
#define blockDim (simt::block_size())
#define gridDim (simt::grid_size())

struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace simt {

template <class T>
Slot slot_of(const T& value) {
  static_assert(sizeof(T) <= sizeof(Slot));
  Slot slot = {};
  std::memcpy(&slot, &value, sizeof(T));
  return slot;
}

template <class T>
T value_of(const Slot& slot) {
  T value;
  std::memcpy(&value, &slot, sizeof(T));
  return value;
}

// Returns the value of lane `source`; poison if that lane did not take part.
template <class T>
T shuffle(std::uint32_t mask, T value, unsigned source) {
  const Slot* deposited = collective(Collective::shuffle, mask, slot_of(value));
  if ((collective_lanes() >> source & 1u) != 0) return value_of<T>(deposited[source]);
  T poison;
  std::memset(&poison, 0xcd, sizeof(T));
  return poison;
}

inline unsigned lane() { return thread_rank() % kWarpLanes; }

}  // namespace simt

inline void __syncthreads() { simt::sync_block(); }
inline void __syncwarp(std::uint32_t mask = simt::kAllLanes) {
  simt::collective(simt::Collective::sync, mask, {});
}

template <class T>
T __shfl_sync(std::uint32_t mask, T value, int source) {
  return simt::shuffle(mask, value, static_cast<unsigned>(source) % 32);
}
template <class T>
T __shfl_xor_sync(std::uint32_t mask, T value, int other) {
  return simt::shuffle(mask, value, (simt::lane() ^ static_cast<unsigned>(other)) % 32);
}
template <class T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned delta) {
  return simt::shuffle(mask, value, simt::lane() >= delta ? simt::lane() - delta : simt::lane());
}
template <class T>
T __shfl_down_sync(std::uint32_t mask, T value, unsigned delta) {
  const unsigned source = simt::lane() + delta;
  return simt::shuffle(mask, value, source < 32 ? source : simt::lane());
}

inline std::uint32_t __ballot_sync(std::uint32_t mask, int predicate) {
  const simt::Slot* votes = simt::collective(simt::Collective::vote, mask,
                                             simt::slot_of(static_cast<int>(predicate != 0)));
  std::uint32_t ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((simt::collective_lanes() >> lane & 1u) == 0) continue;
    ballot |= static_cast<std::uint32_t>(simt::value_of<int>(votes[lane])) << lane;
  }
  return ballot;
}
inline int __any_sync(std::uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(std::uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate == 0) == 0;
}
// Returns the lanes with this lane's value.
inline std::uint32_t __match_any_sync(std::uint32_t mask, int value) {
  const simt::Slot* values = simt::collective(simt::Collective::match, mask, simt::slot_of(value));
  std::uint32_t same = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((simt::collective_lanes() >> lane & 1u) == 0) continue;
    same |= static_cast<std::uint32_t>(simt::value_of<int>(values[lane]) == value) << lane;
  }
  return same;
}
inline unsigned __reduce_max_sync(std::uint32_t mask, unsigned value) {
  const simt::Slot* values = simt::collective(simt::Collective::reduce, mask, simt::slot_of(value));
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((simt::collective_lanes() >> lane & 1u) == 0) continue;
    value = std::max(value, simt::value_of<unsigned>(values[lane]));
  }
  return value;
}
inline unsigned __reduce_min_sync(std::uint32_t mask, unsigned value) {
  return ~__reduce_max_sync(mask, ~value);
}

inline int __reduce_add_sync(std::uint32_t mask, int value) {
  const simt::Slot* values = simt::collective(simt::Collective::reduce, mask, simt::slot_of(value));
  int sum = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((simt::collective_lanes() >> lane & 1u) != 0) sum += simt::value_of<int>(values[lane]);
  }
  return sum;
}

// These use CPU atomics, because blocks run on several OS threads.
template <class T>
T atomicAdd(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &old, static_cast<T>(old + value), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
T atomicMax(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (old < value &&
         !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
T atomicMin(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < old &&
         !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

// Orders the writes of a thread, and of threads that it met at a barrier, for other blocks.
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Also orders these writes for other devices and the host.
inline void __threadfence_system() {
  simt::fence_system();
  __threadfence();
}
inline void __nanosleep(unsigned) { simt::pause(); }
// Returns nanoseconds on the emulator.
inline long long clock64() { return simt::clock(); }

inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<std::int8_t>(a >> 8 * i) * static_cast<std::int8_t>(b >> 8 * i);
  }
  return c;
}
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

using std::max;
using std::min;
