// A kernel for each instruction wrapper (cuda/intrinsics/ptx.h and others). check_ptx.sh compiles
// them to PTX and compares the text that nvcc passes to the assembler with wrappers.txt, by kernel
// names. Each overload of a wrapper has a kernel of its own.
#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/intrinsics/tf32.h"
#include "cuda/intrinsics/wgmma.h"

namespace leq::LEQ_GPU {

using Word = std::uint32_t;

extern "C" {

__global__ void dp4a(int* out, Word a, Word b) { *out = ptx::dp4a(a, b, *out); }
__global__ void dp4a_u8s8(int* out, Word a, Word b) { *out = ptx::dp4a_u8s8(a, b, *out); }
__global__ void f16_to_f32(float* out, std::uint16_t half) { *out = ptx::f16_to_f32(half); }
__global__ void f32_to_f16(std::uint16_t* out, float value) { *out = ptx::f32_to_f16(value); }
__global__ void bf16_to_f32(float* out, std::uint16_t half) { *out = ptx::bf16_to_f32(half); }

__global__ void mma_m16n8k32_s8(int (*d)[4], const Word (*a)[4], const Word (*b)[2]) {
  ptx::mma_m16n8k32_s8(*d, *a, *b);
}
__global__ void mma_m16n8k32_s8_u8(int (*d)[4], const Word (*a)[4], Word b0, Word b1) {
  ptx::mma_m16n8k32_s8_u8(*d, *a, b0, b1);
}
__global__ void mma_m16n8k16_f16(float (*d)[4], const Word (*a)[4], Word b0, Word b1) {
  ptx::mma_m16n8k16_f16(*d, *a, b0, b1);
}
__global__ void mma_m16n8k16_bf16(float (*d)[4], const Word (*a)[4], Word b0, Word b1) {
  ptx::mma_m16n8k16_bf16(*d, *a, b0, b1);
}
__global__ void mma_m16n8k8_tf32(float (*d)[4], const Word (*a)[4], const Word (*b)[2]) {
  ptx::mma_m16n8k8_tf32(*d, *a, *b);
}
__global__ void ldmatrix_x4(Word (*out)[4]) {
  LEQ_DYNAMIC_SHARED(Word, memory);
  ptx::ldmatrix_x4(*out, memory);
}
__global__ void ldmatrix_x4_trans(Word (*out)[4]) {
  LEQ_DYNAMIC_SHARED(Word, memory);
  ptx::ldmatrix_x4_trans(*out, memory);
}

__global__ void cp_async16(const void* from, bool valid) {
  LEQ_DYNAMIC_SHARED(Word, memory);
  ptx::cp_async16(memory, from, valid);
}
__global__ void cp_async_commit() { ptx::cp_async_commit(); }
__global__ void cp_async_wait() { ptx::cp_async_wait<2>(); }
__global__ void sync_threads(int barrier) { ptx::sync_threads(barrier, 64); }
__global__ void wait_for_predecessor() { ptx::wait_for_predecessor(); }
__global__ void let_successor_start() { ptx::let_successor_start(); }
__global__ void prefetch(const void* from) { ptx::prefetch(from); }
__global__ void load_once(uint4* out, const void* from) { *out = ptx::load_once(from); }
__global__ void add_acquire_release(unsigned* out, unsigned* shared, unsigned value) {
  *out = ptx::add_acquire_release(shared, value);
}
__global__ void load_relaxed(float* out, const float* from) { *out = ptx::load_relaxed(from); }

__global__ void opaque(int* out, unsigned x) { *out = ptx::opaque(x); }
__global__ void opaque_shared(Word* out) {
  LEQ_DYNAMIC_SHARED(Word, memory);
  *out = *ptx::opaque_shared(memory);
}
__global__ void select_bytes(Word* out, Word a, Word b) { *out = ptx::select_bytes(a, b, *out); }
__global__ void f16x2_of(Word* out, float first, float second) {
  *out = ptx::f16x2_of(first, second);
}
__global__ void bf16x2_of(Word* out, float first, float second) {
  *out = ptx::bf16x2_of(first, second);
}
__global__ void f16x2_sub(Word* out, Word a, Word b) { *out = ptx::f16x2_sub(a, b); }
__global__ void f16x2_fma(Word* out, Word a, Word b, Word c) { *out = ptx::f16x2_fma(a, b, c); }
__global__ void exp2_near(float* out, float x) { *out = ptx::exp2_near(x); }

__global__ void wrong_architecture() { ptx::wrong_architecture(); }
__global__ void shared_address(Word* out, const void* from) { *out = ptx::shared_address(from); }
__global__ void barrier_init(unsigned count) {
  LEQ_DYNAMIC_SHARED(ptx::Barrier, barrier);
  ptx::barrier_init(*barrier, count);
}
__global__ void fence_init() { ptx::fence_init(); }
__global__ void fence_async() { ptx::fence_async(); }
__global__ void barrier_arrive() {
  LEQ_DYNAMIC_SHARED(ptx::Barrier, barrier);
  ptx::barrier_arrive(*barrier);
}
__global__ void barrier_arrive_at(unsigned rank) {
  LEQ_DYNAMIC_SHARED(ptx::Barrier, barrier);
  ptx::barrier_arrive_at(*barrier, rank);
}
__global__ void barrier_expect(unsigned bytes) {
  LEQ_DYNAMIC_SHARED(ptx::Barrier, barrier);
  ptx::barrier_expect(*barrier, bytes);
}
__global__ void barrier_wait(unsigned parity) {
  LEQ_DYNAMIC_SHARED(ptx::Barrier, barrier);
  ptx::barrier_wait(*barrier, parity);
}
__global__ void tensor_load(const LEQ_GRID_CONSTANT rt::TensorMap map, int column, int row) {
  LEQ_DYNAMIC_SHARED(ptx::Barrier, barrier);
  ptx::tensor_load(barrier + 16, map, column, row, *barrier);
}
__global__ void tensor_load_to(const LEQ_GRID_CONSTANT rt::TensorMap map, int column, int row,
                               unsigned ranks) {
  LEQ_DYNAMIC_SHARED(ptx::Barrier, barrier);
  ptx::tensor_load_to(ranks, barrier + 16, map, column, row, *barrier);
}
__global__ void cluster_rank(Word* out) { *out = ptx::cluster_rank(); }
__global__ void sync_cluster() { ptx::sync_cluster(); }
__global__ void keep_registers() { ptx::keep_registers<56>(); }
__global__ void take_registers() { ptx::take_registers<224>(); }

// A shared-memory matrix descriptor: address and layout fields.
__global__ void matrix_operand(std::uint64_t* out) {
  LEQ_DYNAMIC_SHARED(Word, memory);
  *out = ptx::matrix_operand(memory);
}
__global__ void next_columns(std::uint64_t* out) { *out = ptx::next_columns(*out, 3); }
__global__ void wgmma_fence() { ptx::wgmma_fence(); }
__global__ void wgmma_commit() { ptx::wgmma_commit(); }
__global__ void wgmma_wait() { ptx::wgmma_wait<1>(); }
__global__ void wgmma_finish(int (*sums)[4]) { ptx::wgmma_finish(*sums); }
__global__ void wgmma_256(int (*d)[128], std::uint64_t a, std::uint64_t b, bool add) {
  ptx::wgmma(*d, a, b, add);
}
__global__ void wgmma_128(int (*d)[64], std::uint64_t a, std::uint64_t b, bool add) {
  ptx::wgmma(*d, a, b, add);
}
__global__ void wgmma_128_registers(int (*d)[64], const Word (*a)[4], std::uint64_t b, bool add) {
  ptx::wgmma(*d, *a, b, add);
}
__global__ void wgmma_64_registers(int (*d)[32], const Word (*a)[4], std::uint64_t b, bool add) {
  ptx::wgmma(*d, *a, b, add);
}
__global__ void wgmma_finish_floats(float (*sums)[4]) { ptx::wgmma_finish(*sums); }
__global__ void wgmma_f16(float (*d)[64], const Word (*a)[4], std::uint64_t b, bool add) {
  ptx::wgmma_f16(*d, *a, b, add);
}
__global__ void wgmma_bf16(float (*d)[64], const Word (*a)[4], std::uint64_t b, bool add) {
  ptx::wgmma_bf16(*d, *a, b, add);
}

}  // end of extern "C"

}  // namespace leq::LEQ_GPU
