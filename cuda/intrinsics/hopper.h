// Instructions of compute capability 9.0a beside ptx.h, in the same way: barriers in shared memory
// that count bytes, copies of tiles by the copy engine (TMA), registers moved between warpgroups.
// PTX for nvcc, its meaning for the emulator (sim/async.h). The tensor cores: wgmma.h.
#pragma once

#include "cuda/intrinsics/simt.h"
#include "cuda/rt/tensor_map.h"

#ifndef __CUDACC__
#include "cuda/sim/async.h"
#include "cuda/sim/emulator.h"
#endif

namespace leq::LEQ_GPU::ptx {

// Whether this pass of the compiler has these instructions; where it has not, a kernel's body is
// left out, and what remains is wrong_architecture().
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
inline constexpr bool kHopper = true;
#else
inline constexpr bool kHopper = false;
#endif

// Ends the program: a build without 90a runs on a 9.0 device.
__device__ __forceinline__ void wrong_architecture() {
#ifdef __CUDA_ARCH__
  asm volatile("trap;");
#endif
}

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
#elif !defined(__CUDACC__)
  return simt::shared_address(shared);
#else
  return 0;
#endif
}

// An mbarrier: its phase ends when `count` threads have arrived and all announced bytes have come;
// then the next begins with the same count. Phases have parity 0, 1, 0 ...
struct alignas(8) Barrier {
  std::uint64_t word;
};

// By one thread; then fence_init() and a sync_cluster or __syncthreads before others use it.
__device__ __forceinline__ void barrier_init(Barrier& barrier, unsigned count) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
#elif !defined(__CUDACC__)
  simt::barrier_init(&barrier.word, count);
#endif
}

__device__ __forceinline__ void fence_init() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// What this thread wrote to shared memory before is there for the copy engine and wgmma after it.
__device__ __forceinline__ void fence_async() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ __forceinline__ void barrier_arrive(Barrier& barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
               : "memory");
#elif !defined(__CUDACC__)
  simt::barrier_arrive(&barrier.word, 0);
#endif
}

// At the barrier in the same place of block `rank` of the cluster: for what was read, which need
// not be fenced. (With .release.cluster ptxas makes a fence of the whole GPU's memory.)
__device__ __forceinline__ void barrier_arrive_at(Barrier& barrier, unsigned rank) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(&barrier)),
      "r"(rank)
      : "memory");
#elif !defined(__CUDACC__)
  simt::barrier_arrive(simt::barrier_of(&barrier.word, rank), 0);
#endif
}

// Announces bytes that copies will bring in this phase, and arrives.
__device__ __forceinline__ void barrier_expect(Barrier& barrier, unsigned bytes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
      "r"(bytes)
      : "memory");
#elif !defined(__CUDACC__)
  simt::barrier_arrive(&barrier.word, bytes);
#endif
}

// Until a phase of this parity has ended: at once where the running phase has the other one.
__device__ __forceinline__ void barrier_wait(Barrier& barrier, unsigned parity) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const std::uint32_t at = shared_address(&barrier);
  std::uint32_t ended = 0;
  while (ended == 0) {
    asm volatile(
        "{\n.reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n}"
        : "=r"(ended)
        : "r"(at), "r"(parity)
        : "memory");
  }
#elif !defined(__CUDACC__)
  simt::barrier_wait(&barrier.word, parity);
#endif
}

// Starts copying the box of `map` at (column, row) to shared memory, a multiple of 128 bytes;
// what lies outside of the tensor becomes 0. Its bytes count for the barrier's phase.
__device__ __forceinline__ void tensor_load(void* shared, const rt::TensorMap& map, int column,
                                            int row, Barrier& barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier))
      : "memory");
#elif !defined(__CUDACC__)
  simt::tensor_load(shared, map.bytes, column, row, &barrier.word, 1u << simt::cluster_rank());
#endif
}

// The same to all blocks of the cluster that `ranks` names by bits: to the same place, with the
// barrier at the same place.
__device__ __forceinline__ void tensor_load_to(unsigned ranks, void* shared,
                                               const rt::TensorMap& map, int column, int row,
                                               Barrier& barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier)),
      "h"(static_cast<std::uint16_t>(ranks))
      : "memory");
#elif !defined(__CUDACC__)
  simt::tensor_load(shared, map.bytes, column, row, &barrier.word, ranks);
#endif
}

// Of this block in its cluster (rt::Launch::cluster).
__device__ __forceinline__ unsigned cluster_rank() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#elif !defined(__CUDACC__)
  return simt::cluster_rank();
#else
  return 0;
#endif
}

// All threads of the cluster's blocks, as __syncthreads for one.
__device__ __forceinline__ void sync_cluster() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#elif !defined(__CUDACC__)
  simt::sync_cluster();
#endif
}

// The warpgroup gives registers back, or takes more: `count` for each thread from now on. All its
// warps call it.
template <int count>
__device__ __forceinline__ void keep_registers() {
  static_assert(count >= 24 && count <= 256 && count % 8 == 0);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
#endif
}
template <int count>
__device__ __forceinline__ void take_registers() {
  static_assert(count >= 24 && count <= 256 && count % 8 == 0);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
#endif
}

}  // namespace leq::LEQ_GPU::ptx
