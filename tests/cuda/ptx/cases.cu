// The kernels of ptx_conformance: one for each wrapper of ptx.h, and for the CUDA functions whose
// rounding or order the engine relies on.
#include "cuda/intrinsics/float_math.cuh"
#include "cuda/intrinsics/ptx.h"
#include "tests/cuda/ptx/run_case.cuh"

namespace leq::LEQ_GPU {
namespace {

__global__ void dp4a_words(const Word* in, Word* out) {
  in += thread() * kIn;
  out += thread() * kOut;
  for (unsigned i = 0; i < 4; ++i) {
    out[i] = static_cast<Word>(ptx::dp4a(in[i], in[i + 1], static_cast<int>(in[i + 2] >> 2)));
    out[4 + i] =
        static_cast<Word>(ptx::dp4a_u8s8(in[i], in[i + 1], static_cast<int>(in[i + 2] >> 2)));
  }
}

__global__ void half_numbers(const Word* in, Word* out) {
  const unsigned i = thread();
  out[i * kOut] = bits_of(ptx::f16_to_f32(static_cast<std::uint16_t>(i)));  // all low halves
  out[i * kOut + 1] = bits_of(ptx::f16_to_f32(static_cast<std::uint16_t>(in[i * kIn])));
  out[i * kOut + 2] = bits_of(ptx::bf16_to_f32(static_cast<std::uint16_t>(in[i * kIn])));
  for (unsigned k = 1; k < 5; ++k) {
    const float x = __uint_as_float(in[i * kIn + k]);
    out[i * kOut + 2 + k] = x != x ? 0x7e00u : ptx::f32_to_f16(x);
  }
  // Converts numbers that are exact in f16, and numbers halfway between two f16 numbers.
  const float near = ptx::f16_to_f32(static_cast<std::uint16_t>(in[i * kIn + 5] & 0xfbffu));
  out[i * kOut + 7] = ptx::f32_to_f16(__uint_as_float(__float_as_uint(near) | 0x1000u));
}

__global__ void mma_bytes(const Word* in, Word* out) {
  in += thread() * kIn;
  int d[4] = {0, 1, -5, static_cast<int>(in[6] >> 4)};
  const Word a[4] = {in[0], in[1], in[2], in[3]}, b[2] = {in[4], in[5]};
  ptx::mma_m16n8k32_s8(d, a, b);
  ptx::mma_m16n8k32_s8(d, a, b);
  for (unsigned i = 0; i < 4; ++i) out[thread() * kOut + i] = static_cast<Word>(d[i]);
}

// Each lane provides the address of one row of the matrices.
__global__ void matrix_loads(const Word* in, Word* out) {
  LEQ_SHARED(uint4[2 * kThreads], rows);
  const Word* mine = in + thread() * kIn;
  rows[threadIdx.x] = {mine[0], mine[1], mine[2], mine[3]};
  rows[kThreads + threadIdx.x] = {mine[4], mine[5], mine[6], mine[7]};
  __syncthreads();
  Word r[4];
  ptx::ldmatrix_x4(r, &rows[in[thread() * kIn] % (2 * kThreads)]);
  for (unsigned i = 0; i < 4; ++i) out[thread() * kOut + i] = r[i];
}

// Waits for the first of two groups of copies, then the second, with every fourth copy empty.
__global__ void async_copies(const Word* in, Word* out) {
  LEQ_SHARED(uint4[2][kThreads], stages);
  const unsigned t = threadIdx.x;
  const Word* mine = in + thread() * kIn;
  ptx::cp_async16(&stages[0][t], mine, true);
  ptx::cp_async_commit();
  ptx::cp_async16(&stages[1][t], mine + 4, t % 4 != 0);
  ptx::cp_async_commit();
  ptx::cp_async_wait<1>();
  __syncthreads();
  const uint4 first = stages[0][(t + 33) % kThreads];
  ptx::cp_async_wait<0>();
  __syncthreads();
  const uint4 second = stages[1][(t + 65) % kThreads];
  const Word found[kOut] = {first.x,  first.y,  first.z,  first.w,
                            second.x, second.y, second.z, second.w};
  for (unsigned i = 0; i < kOut; ++i) out[thread() * kOut + i] = found[i];
}

// Warps in pairs, each pair with its own barrier, exchange words between their lanes.
__global__ void pairs_of_warps(const Word* in, Word* out) {
  LEQ_SHARED(Word[kThreads], shared);
  const unsigned t = threadIdx.x, pair = t / 64;
  for (unsigned i = 0; i < kOut; ++i) {
    shared[t] = in[thread() * kIn + i];
    ptx::sync_threads(static_cast<int>(1 + pair), 64);
    out[thread() * kOut + i] = shared[pair * 64 + (t + 33) % 64];
    ptx::sync_threads(static_cast<int>(1 + pair), 64);
  }
}

__global__ void loads_once(const Word* in, Word* out) {
  const uint4 v = ptx::load_once(in + thread() * kIn + 4);
  out[thread() * kOut] = v.x ^ v.y;
  out[thread() * kOut + 1] = v.z + v.w;
}

__global__ void warp_words(const Word* in, Word* out) {
  in += thread() * kIn;
  out += thread() * kOut;
  constexpr unsigned kAll = 0xffffffffu;
  out[0] = __shfl_sync(kAll, in[0], static_cast<int>(in[1] % 32));
  out[1] = __shfl_xor_sync(kAll, in[0], 5);
  out[2] = __shfl_up_sync(kAll, in[0], 3);
  out[3] = __shfl_down_sync(kAll, in[0], 9);
  out[4] = __ballot_sync(kAll, in[2] % 3 == 0);
  out[5] =
      static_cast<Word>(__any_sync(kAll, in[3] % 40 == 0) * 2 + __all_sync(kAll, in[4] % 40 != 0));
  out[6] = static_cast<Word>(__popc(in[5]));
}

// Each operation must round once, to nearest even, and keep subnormals (docs/numerics.md).
__global__ void float_operations(const Word* in, Word* out) {
  in += thread() * kIn;
  out += thread() * kOut;
  const float a = __uint_as_float(in[0]), b = __uint_as_float(in[1]), c = __uint_as_float(in[2]);
  const float small = __uint_as_float(in[3] & 0xc0ffffffu);
  out[0] = bits_of(a * b + c);
  out[1] = bits_of(fmaf(a, b, c));
  out[2] = bits_of(a / b);
  out[3] = bits_of(sqrtf(fabsf(a)));
  out[4] = bits_of(1.0f / sqrtf(fabsf(b)));
  out[5] = static_cast<Word>(__float2int_rn(small * 1000.0f));
  // NaN inputs are made quiet: for a signalling NaN, C returns a NaN, hardware the other operand.
  const float quiet = __uint_as_float(in[0] | 0x00400000u);
  out[6] = bits_of(fminf(fmaxf(quiet, -127.0f), 127.0f));
  out[7] = bits_of(static_cast<float>(static_cast<int>(in[4])));
}

// The inputs have the magnitudes that occur in attention and activations.
__global__ void float_functions(const Word* in, Word* out) {
  in += thread() * kIn;
  out += thread() * kOut;
  for (unsigned i = 0; i < 2; ++i) {
    const float x = static_cast<float>(static_cast<int>(in[i])) * 0x1p-24f;  // -128 .. 128
    out[3 * i] = bits_of(device_exp(x));
    out[3 * i + 1] = bits_of(device_silu(x));
    out[3 * i + 2] = bits_of(device_gelu(x));
  }
}

// Many threads add to one word, or compute its extrema, with atomic operations.
__global__ void atomic_words(const Word* in, Word* out) {
  const Word mine = in[thread() * kIn] >> 16;
  Word* const place = out + blockIdx.x * kThreads * kOut;  // initially zeros
  atomicAdd(place, mine);
  atomicMax(place + 1, mine);
  if (threadIdx.x == 0) place[2] = 1u << 31;
  __syncthreads();
  atomicMin(place + 2, mine);
}

// Each thread writes a number, each block increments a counter, and the last block adds all
// numbers. The sums are exact.
__global__ void counted_blocks(const Word* in, Word* out) {
  LEQ_SHARED(bool, last);
  auto* const numbers = reinterpret_cast<float*>(out);
  numbers[thread() * kOut] = static_cast<float>(in[thread() * kIn] >> 16);
  __syncthreads();
  if (threadIdx.x == 0) last = ptx::add_acquire_release(out + 1, 1u) + 1 == kBlocks;
  __syncthreads();
  if (!last) return;
  float sum = 0;
  for (unsigned block = 0; block < kBlocks; ++block) {
    sum += ptx::load_relaxed(numbers + (block * kThreads + threadIdx.x) * kOut);
  }
  numbers[threadIdx.x * kOut + 2] = sum;
}

// Two kernels: the second begins while the first runs, and must read what the first wrote.
__global__ void first_of_two(const Word* in, Word* out) {
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  for (unsigned i = 0; i < kOut; ++i) out[thread() * kOut + i] = in[thread() * kIn + i] * 3 + i;
}
__global__ void second_of_two(const Word* in, Word* out) {
  // The kernel reads words that another block of first_of_two wrote.
  const Word* const read = in + (kBlocks - 1 - blockIdx.x) * kThreads * kOut + threadIdx.x * kOut;
  ptx::prefetch(read);
  ptx::wait_for_predecessor();
  for (unsigned i = 0; i < kOut; ++i) out[thread() * kOut + i] = read[i] ^ i;
}
std::vector<Word> run_early(unsigned seed) {
  CaseMemory memory(seed);
  const CaseMemory between(seed);
  const rt::Launch launch = {"ptx_conformance", dim3(kBlocks), dim3(kThreads), 0, rt::Start::early};
  rt::run(case_stream(), launch, first_of_two, memory.in(), between.out());
  rt::run(case_stream(), launch, second_of_two, static_cast<const Word*>(between.out()),
          memory.out());
  return memory.result();
}

}  // namespace

std::vector<PtxCase> ptx_cases() {
  std::vector<PtxCase> all = {
      {"dp4a, dp4a_u8s8", 8, run<dp4a_words>},
      {"f16_to_f32, f32_to_f16, bf16_to_f32", 8, run<half_numbers>},
      {"mma_m16n8k32_s8", 8, run<mma_bytes>},
      {"ldmatrix_x4", 8, run<matrix_loads>},
      {"cp_async16, commit, wait", 8, run<async_copies>},
      {"sync_threads", 8, run<pairs_of_warps>},
      {"load_once", 2, run<loads_once>},
      {"add_acquire_release, load_relaxed", 8, run<counted_blocks>},
      {"wait_for_predecessor, let_successor_start, prefetch", 2, run_early},
      {"shfl, ballot, any, all, popc", 8, run<warp_words>},
      {"f32 * + fma / sqrt, rounding", 32, run<float_operations>},
      {"exp, silu, gelu", 32, run<float_functions>},
      {"atomicAdd, atomicMax, atomicMin", 2, run<atomic_words>},
  };
  for (const auto& more : {attention_cases(), hopper_cases()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace leq::LEQ_GPU
