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

namespace simt {
// Exchanges `mine` and calls use(lane, value) for each lane that took part.
template <class T, class Use>
void for_lanes(Collective kind, std::uint32_t mask, T mine, Use use) {
  const Slot* values = collective(kind, mask, slot_of(mine));
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((collective_lanes() >> lane & 1u) != 0) use(lane, value_of<T>(values[lane]));
  }
}
// Returns the lanes whose value equals `wanted`.
inline std::uint32_t lanes_with(Collective kind, std::uint32_t mask, int mine, int wanted) {
  std::uint32_t lanes = 0;
  for_lanes(kind, mask, mine, [&](unsigned lane, int value) {
    lanes |= static_cast<std::uint32_t>(value == wanted) << lane;
  });
  return lanes;
}
}  // namespace simt

inline std::uint32_t __ballot_sync(std::uint32_t mask, int predicate) {
  return simt::lanes_with(simt::Collective::vote, mask, predicate != 0, 1);
}
inline int __any_sync(std::uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(std::uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate == 0) == 0;
}
// Returns the lanes with this lane's value.
inline std::uint32_t __match_any_sync(std::uint32_t mask, int value) {
  return simt::lanes_with(simt::Collective::match, mask, value, value);
}
inline unsigned __reduce_max_sync(std::uint32_t mask, unsigned value) {
  simt::for_lanes(simt::Collective::reduce, mask, value,
                  [&](unsigned, unsigned other) { value = std::max(value, other); });
  return value;
}
inline unsigned __reduce_min_sync(std::uint32_t mask, unsigned value) {
  return ~__reduce_max_sync(mask, ~value);
}
inline int __reduce_add_sync(std::uint32_t mask, int value) {
  int sum = 0;
  simt::for_lanes(simt::Collective::reduce, mask, value, [&](unsigned, int one) { sum += one; });
  return sum;
}

namespace simt {
// Replaces a number by changed(old) and returns the old one, by CPU atomics, because blocks run on
// several OS threads.
template <class T, class Changed>
T exchange_atomically(T* at, Changed changed) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &old, static_cast<T>(changed(old)), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
}  // namespace simt

template <class T>
T atomicAdd(T* at, T value) {
  return simt::exchange_atomically(at, [=](T old) { return old + value; });
}
template <class T>
T atomicMax(T* at, T value) {
  return simt::exchange_atomically(at, [=](T old) { return std::max(old, value); });
}
template <class T>
T atomicMin(T* at, T value) {
  return simt::exchange_atomically(at, [=](T old) { return std::min(old, value); });
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
