// The machine instructions that kernels use, each wrapped in a function: PTX for nvcc, the same
// semantics in plain C++ for the emulator. A wrong modifier in the PTX can be found only on
// hardware, where a conformance test compares with the host versions, bit for bit.
#pragma once

#include "base/half.h"
#include "cuda/intrinsics/simt.h"

#ifndef __CUDACC__
#include "cuda/sim/matrices.h"
#endif

namespace leq::LEQ_GPU::ptx {

// Hides x from the compiler's optimizer, so that values derived from x are computed where they are
// used instead of being kept in registers across a loop.
__device__ __forceinline__ int opaque(unsigned x) {
  auto y = static_cast<int>(x);
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(y));
#endif
  return y;
}
// Hides an address in global memory, so that offsets are added to the address as a whole.
template <class T>
__device__ __forceinline__ const T* opaque(const T* address) {
#ifdef __CUDA_ARCH__
  std::size_t at = __cvta_generic_to_global(address);  // keeps its address space known
  asm("" : "+l"(at));
  return static_cast<const T*>(__cvta_global_to_generic(at));
#else
  return address;
#endif
}

// Hides an address in shared memory, so that offsets are added to the address as a whole.
template <class T>
__device__ __forceinline__ T* opaque_shared(T* address) {
#ifdef __CUDA_ARCH__
  auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
  asm("" : "+r"(at));
  return static_cast<T*>(__cvta_shared_to_generic(at));
#else
  return address;
#endif
}

// Returns from + step * index for index >= 0 by one 32-bit multiply-add; a signed index would take
// four operations.
template <int step = 1, class T>
__device__ __forceinline__ const T* moved(const T* from, int index) {
  return from + static_cast<std::size_t>(static_cast<unsigned>(index)) * step;
}

// the sum of a's signed bytes times b's signed bytes, plus c
__device__ __forceinline__ int dp4a(std::uint32_t a, std::uint32_t b, int c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}

// the sum of a's unsigned bytes times b's signed bytes, plus c
__device__ __forceinline__ int dp4a_u8s8(std::uint32_t a, std::uint32_t b, int c) {
#ifdef __CUDA_ARCH__
  int sum;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
#else
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int>(a >> 8 * i & 0xffu) * static_cast<std::int8_t>(b >> 8 * i);
  }
  return c;
#endif
}

// conversion of f16 bits: exact, and back to nearest even with overflow to infinity
__device__ __forceinline__ float f16_to_f32(std::uint16_t half) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  return leq::f16_to_f32(half);
#endif
}
__device__ __forceinline__ std::uint16_t f32_to_f16(float value) {
#ifdef __CUDA_ARCH__
  std::uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  return leq::f32_to_f16(value);
#endif
}
__device__ __forceinline__ float bf16_to_f32(std::uint16_t half) {
  return __uint_as_float(static_cast<std::uint32_t>(half) << 16);
}

// D[16][8] += A[16][32] B[32][8] with signed bytes and int32 sums. g = lane / 4, t = lane % 4:
//   a[r] byte j: row g + 8 (r % 2), column 4t + j + 16 (r / 2)
//   b[r] byte j: k = 4t + j + 16 r, column g
//   d[i]:        row g + 8 (i / 2), column 2t + i % 2
__device__ __forceinline__ void mma_m16n8k32_s8(int (&d)[4], const std::uint32_t (&a)[4],
                                                const std::uint32_t (&b)[2]) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif !defined(__CUDACC__)
  simt::mma_m16n8(d, a, b, simt::bytes_of<std::int8_t>, simt::bytes_of<std::int8_t>);
#endif
}

// Loads four 8 x 8 matrices of 16-bit numbers from shared memory. Lane l passes the address of row
// l % 8 of matrix l / 8, and gets two numbers of each matrix: row l / 4, columns 2 (l % 4) and
// 2 (l % 4) + 1. Addresses are multiples of 16 bytes.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
#ifdef __CUDA_ARCH__
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
#elif !defined(__CUDACC__)
  simt::ldmatrix_x4<false>(r, row);
#endif
}

// Starts copying 16 bytes from global to shared memory, or zeros if `valid` is false. They arrive
// at any time before the thread has waited for the group in which they were committed.
__device__ __forceinline__ void cp_async16(void* shared, const void* global, bool valid) {
#ifdef __CUDA_ARCH__
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(at), "l"(global),
               "r"(valid ? 16 : 0));
#elif !defined(__CUDACC__)
  simt::copy_issue(shared, global, 16, valid ? 16 : 0);
#endif
}
__device__ __forceinline__ void cp_async_commit() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;");
#elif !defined(__CUDACC__)
  simt::copy_commit();
#endif
}
// Waits until at most `left` of this thread's groups are in flight.
template <int left>
__device__ __forceinline__ void cp_async_wait() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(left));
#elif !defined(__CUDACC__)
  simt::copy_wait(left);
#endif
}

// Waits at named barrier 1 to 15 for `threads` of the block's threads (whole warps), all of which
// pass the same `barrier`. Orders their writes to shared memory.
__device__ __forceinline__ void sync_threads(int barrier, int threads) {
#ifdef __CUDA_ARCH__
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#elif !defined(__CUDACC__)
  simt::sync_threads(static_cast<unsigned>(barrier), static_cast<unsigned>(threads));
#endif
}

// In a kernel launched with rt::Start::early, waits until the preceding kernels have ended and
// their writes are visible. No effect in other kernels, or before compute capability 9.0.
__device__ __forceinline__ void wait_for_predecessor() {
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#elif !defined(__CUDACC__)
  simt::wait_for_predecessor();
#endif
}
// Allows the next kernel, if launched early, to start when all blocks have called this or ended.
__device__ __forceinline__ void let_successor_start() {
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#elif !defined(__CUDACC__)
  simt::let_successor_start();
#endif
}

// Prefetches this address's cache line into L2, for the first reads of a kernel that starts early.
// No effect on architectures without early starts.
__device__ __forceinline__ void prefetch(const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
#else
  static_cast<void>(global);
#endif
}

// Loads 16 bytes that are read once, without allocation in L1. It is volatile and not .nc, because
// ptxas moves .nc loads below griddepcontrol.wait, where they would not overlap with the wait.
__device__ __forceinline__ uint4 load_once(const void* global) {
#ifdef __CUDA_ARCH__
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global));
  return v;
#else
  return *static_cast<const uint4*>(global);
#endif
}

// Adds to a number in global memory that blocks share, and returns the old value. Writes before a
// thread's addition (its own writes, and those of threads that it met at a barrier before) are
// visible to each thread that adds later, and to threads that meet that thread at a barrier
// afterwards. This has one fence; an addition with __threadfence on both sides has two.
__device__ __forceinline__ unsigned add_acquire_release(unsigned* global, unsigned value) {
#ifdef __CUDA_ARCH__
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0,[%1],%2;"
               : "=r"(before)
               : "l"(global), "r"(value)
               : "memory");
  return before;
#else
  return __atomic_fetch_add(global, value, __ATOMIC_ACQ_REL);
#endif
}

// Loads a number that other blocks may have written, bypassing the L1 cache, which is not
// coherent.
__device__ __forceinline__ float load_relaxed(const float* global) {
  float value;
#ifdef __CUDA_ARCH__
  asm volatile("ld.relaxed.gpu.global.f32 %0,[%1];" : "=f"(value) : "l"(global));
#else
  __atomic_load(global, &value, __ATOMIC_RELAXED);
#endif
  return value;
}

// Returns bytes: byte i is byte (selector >> 4 i) % 8 of a (bytes 0 to 3) and b (bytes 4 to 7).
__device__ __forceinline__ std::uint32_t select_bytes(std::uint32_t a, std::uint32_t b,
                                                      std::uint32_t selector) {
#ifdef __CUDA_ARCH__
  std::uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(selector));
  return bytes;
#else
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t bytes = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned from = selector >> 4 * i & 7u;
    bytes |= (static_cast<std::uint32_t>(both >> 8 * from) & 0xffu) << 8 * i;
  }
  return bytes;
#endif
}

}  // namespace leq::LEQ_GPU::ptx
