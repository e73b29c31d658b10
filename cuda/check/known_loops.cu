// Kernels whose main loop has one fence and one division: cuda/check/check_nvcc.sh counts them by
// loops.awk on every architecture, to validate its counts of other kernels.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/ptx_attention.h"

namespace leq::LEQ_GPU {

// Found by its dp4a, with an inner loop and another loop that divide too.
__global__ void known_dp4a(int* out, const int* in, int count) {
  int sum = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    sum = ptx::dp4a(static_cast<std::uint32_t>(in[count / (i + 1)]),
                    static_cast<std::uint32_t>(in[i]), sum);
    out[i] = sum;
    __threadfence();
  }
#pragma unroll 1
  for (int k = 0; k < in[0]; ++k) out[k] = in[count - k] / (k + 2);
}

// Found by its tensor-core instructions, in a loop around it that divides too.
__global__ void known_mma(float* out, const std::uint32_t* in, int count) {
  float sums[4] = {};
#pragma unroll 1
  for (int j = 0; j < count; ++j) {
    out[j] = static_cast<float>(in[count / (j + 3)]);
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const std::uint32_t a[4] = {in[count / (i + 1)], in[i + 1], in[i + 2], in[i + 3]};
      ptx::mma_m16n8k16_f16(sums, a, a[1], a[0]);
      __threadfence();
    }
  }
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = sums[i];
}

// Without such instructions all loops count.
__global__ void known_plain(int* out, const int* in, int count) {
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    out[i] = in[count / (i + 1)];
    __threadfence();
  }
}

// Two loads before the wait for the previous kernel, one after it.
__global__ void known_early(uint4* out, const uint4* in) {
  const uint4 a = ptx::load_once(in + threadIdx.x), b = ptx::load_once(in + threadIdx.x + 32);
  ptx::wait_for_predecessor();
  const uint4 c = ptx::load_once(in + threadIdx.x + 64);
  out[threadIdx.x] = {a.x + b.x + c.x, a.y + b.y + c.y, a.z + b.z + c.z, a.w + b.w + c.w};
}

}  // namespace leq::LEQ_GPU
