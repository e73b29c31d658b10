// Instructions of compute capability 9.0a, wrapped like those of ptx.h: barriers in shared memory
// that count bytes, tile copies (TMA), and registers moved between warpgroups. They are PTX for
// nvcc and plain C++ for the emulator (sim/async.h). The tensor cores are in wgmma.h.
#pragma once

#include "cuda/intrinsics/simt.h"
#include "cuda/rt/tensor_map.h"

#ifndef __CUDACC__
#include "cuda/sim/async.h"
#include "cuda/sim/emulator.h"
#endif

namespace leq::LEQ_GPU::ptx {

// Defines whether this compiler pass supports these instructions. If not, the body of a kernel is
// omitted, except for wrong_architecture().
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
inline constexpr bool kHopper = true;
#else
inline constexpr bool kHopper = false;
#endif

// Ends the program, because a build without 90a code is running on a 9.0 device.
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

// An mbarrier. A phase ends when `count` threads and all announced bytes have arrived; then the
// next phase begins with the same count. Phases have the parity 0, 1, 0, ...
struct alignas(8) Barrier {
  std::uint64_t word;
};

// One thread calls this; fence_init() and sync_cluster or __syncthreads must follow.
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

// Makes this thread's earlier writes to shared memory visible to TMA and to wgmma.
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

// Arrives at the barrier at the same offset in block `rank` of the cluster. It follows reads, which
// need no fence. (With .release.cluster ptxas emits a fence for the memory of the whole GPU.)
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

// Announces the bytes that copies will write in this phase, and arrives.
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

// Waits until a phase of this parity has ended; returns at once if the current parity differs.
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

// Starts copying the box of `map` at (column, row) to shared memory, aligned to 128 bytes. Elements
// out of bounds become 0. The bytes are counted by the barrier's current phase.
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

// Copies to all blocks of the cluster in the bit mask `ranks`: to the same offset in each block,
// with the barrier at the same offset.
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

// Returns the rank of this block in its cluster (rt::Launch::cluster).
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

// Synchronizes all threads of the cluster, like __syncthreads for those of a block.
__device__ __forceinline__ void sync_cluster() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#elif !defined(__CUDACC__)
  simt::sync_cluster();
#endif
}

// Releases or acquires registers, so that each thread of the warpgroup then has `count`. All warps
// of the warpgroup must call this.
template <int count>
__device__ __forceinline__ void keep_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
#endif
}
template <int count>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
#endif
}

}  // namespace leq::LEQ_GPU::ptx
