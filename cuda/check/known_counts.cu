// Kernels with known numbers of tensor-core instructions, and some with a known loop or wait.
// cuda/check/check_nvcc.sh counts them with sass_counts.cpp on every architecture, to verify that
// its counts of other kernels are right.
#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/intrinsics/wgmma.h"

namespace leq::LEQ_GPU {

__global__ void counted_imma_7(int* out, const std::uint32_t* in) {
  int sums[4] = {};
  std::uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = in[threadIdx.x + 32 * i];
  for (int i = 0; i < 2; ++i) b[i] = in[threadIdx.x + 32 * i + 128];
#pragma unroll
  for (int i = 0; i < 7; ++i) ptx::mma_m16n8k32_s8(sums, a, b);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = sums[i];
}

__global__ void counted_hmma_5(float* out, const std::uint32_t* in) {
  float sums[4] = {};
  std::uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = in[threadIdx.x + 32 * i];
  for (int i = 0; i < 2; ++i) b[i] = in[threadIdx.x + 32 * i + 128];
#pragma unroll
  for (int i = 0; i < 5; ++i) ptx::mma_m16n8k16_f16(sums, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = sums[i];
}

__global__ void counted_bmma_3(float* out, const std::uint32_t* in) {
  float sums[4] = {};
  std::uint32_t a[4];
  for (int i = 0; i < 4; ++i) a[i] = in[threadIdx.x + 32 * i];
  const std::uint32_t b[2] = {in[threadIdx.x + 128], in[threadIdx.x + 160]};
#pragma unroll
  for (int i = 0; i < 3; ++i) ptx::mma_m16n8k16_bf16(sums, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = sums[i];
}

// Compiles to an empty kernel on other architectures.
__global__ void __launch_bounds__(128, 1) counted_igmma_6(int* out, std::uint64_t operand) {
  if constexpr (ptx::kHopper) {
    int sums[64] = {};
    std::uint32_t a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::wgmma(sums, ptx::next_columns(operand, i), operand, true);
#pragma unroll
    for (int i = 0; i < 2; ++i) ptx::wgmma(sums, a, ptx::next_columns(operand, i), true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 64; ++i) out[threadIdx.x * 64 + static_cast<unsigned>(i)] = sums[i];
  }
}

__global__ void __launch_bounds__(128, 1) counted_hgmma_5(float* out, std::uint64_t operand) {
  if constexpr (ptx::kHopper) {
    float sums[64] = {};
    std::uint32_t a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 3; ++i) ptx::wgmma_f16(sums, a, ptx::next_columns(operand, i), true);
#pragma unroll
    for (int i = 0; i < 2; ++i) ptx::wgmma_bf16(sums, a, ptx::next_columns(operand, i), true);
    ptx::wgmma_commit();
    ptx::wgmma_finish(sums);
#pragma unroll
    for (int i = 0; i < 64; ++i) out[threadIdx.x * 64 + static_cast<unsigned>(i)] = sums[i];
  }
}

// A kernel without tensor-core instructions.
__global__ void counted_0(int* out, const std::uint32_t* in) {
  out[threadIdx.x] = ptx::dp4a(in[threadIdx.x], in[threadIdx.x + 32], 0);
}

// A main loop that is identified by its dp4a and contains a fence, a division and an inner loop.
__global__ void looped(int* out, const int* in, int count) {
  int sum = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    sum = ptx::dp4a(static_cast<std::uint32_t>(in[count / (i + 1)]),
                    static_cast<std::uint32_t>(in[i]), sum);
    out[i] = sum;
    __threadfence();
    if (sum == 0) {
#pragma unroll 1
      for (int k = 0; k < in[i]; ++k) out[k] = in[count - k] / (k + 2);
    }
  }
}

// A loop without tensor-core instructions, in which fences and divisions are counted, too.
__global__ void plain(int* out, const int* in, int count) {
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    out[i] = in[count / (i + 1)];
    __threadfence();
  }
}

// Issues two loads of 16 bytes before the wait, and a third after it.
__global__ void early(uint4* out, const uint4* in) {
  const uint4 a = ptx::load_once(in + threadIdx.x), b = ptx::load_once(in + threadIdx.x + 32);
  ptx::wait_for_predecessor();
  const uint4 c = ptx::load_once(in + threadIdx.x + 64);
  out[threadIdx.x] = {a.x + b.x + c.x, a.y + b.y + c.y, a.z + b.z + c.z, a.w + b.w + c.w};
}

// A loop with a warp-uniform branch, for which architecture 12.0 has a special instruction.
__global__ void together_4(float* out, const std::uint32_t* in, int count) {
  float sums[4] = {};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    std::uint32_t a[4];
    for (int k = 0; k < 4; ++k) a[k] = in[threadIdx.x + 32 * static_cast<unsigned>(4 * i + k)];
#pragma unroll
    for (int k = 0; k < 4; ++k) ptx::mma_m16n8k16_f16(sums, a, a[k], a[0]);
    __threadfence();
  }
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = sums[i];
}

}  // namespace leq::LEQ_GPU
