// Tests whether wgmma and mma add the products of 16-bit floats to the same bits. This is not
// documented, because the hardware defines the order and rounding of these sums. The test computes
// the chains of float_gemm.cuh both ways, with numbers that expose where the hardware truncates.
#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/intrinsics/run.h"
#include "cuda/intrinsics/wgmma.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kFormThreads = 128, kFormBlocks = 32, kTokens = 128, kTileBytes = kTokens * 128;
constexpr int kSteps = 24;  // of 16 columns each; the longest chain
constexpr int kSpreads = 4;

// A pseudo-random number that depends only on the argument.
__device__ __forceinline__ std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// Two numbers with random signs and mantissas; one in eight has mantissa 0. Exponents vary within
// 2^s steps, where s = 0, 2, 4 or 5 depends on the block, so that some products cancel and others
// are truncated beside larger ones. f16's largest and smallest numbers occur; sums stay finite.
template <bool is_bf16>
__device__ __forceinline__ std::uint32_t number_pair(std::uint32_t seed, int spread) {
  constexpr int kMantissa = is_bf16 ? 7 : 10, kMiddle = is_bf16 ? 112 : 0;
  constexpr std::uint32_t kMantissas = (1u << kMantissa) - 1;
  constexpr std::uint32_t kRange[kSpreads] = {1, 4, 16, 31};
  std::uint32_t both = 0;
#pragma unroll
  for (std::uint32_t i = 0; i < 2; ++i) {
    const std::uint32_t random = mixed(seed * 2 + i);
    const std::uint32_t range = kRange[spread];
    const std::uint32_t exponent = kMiddle + (31 - range) / 2 + ((random >> 16) * range >> 16);
    const std::uint32_t mantissa = random >> 29 == 0 ? 0 : random & kMantissas;
    const std::uint32_t sign = random >> 12 & 1;
    both |= (sign << 15 | exponent << kMantissa | mantissa) << 16 * i;
  }
  return both;
}

template <bool is_bf16>
__device__ __forceinline__ unsigned differences_of(unsigned char* tile, std::uint32_t seed,
                                                   int spread) {
  const auto thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  float sums[64], chains[64] = {};
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    seed = mixed(seed + 1);
    // The tokens' tile: each thread writes a row of 32 bytes in the order of Swizzle::bytes_128.
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int place = (i / 4 ^ thread % 8) * 16 + i % 4 * 4;
      *reinterpret_cast<std::uint32_t*>(tile + thread * 128 + place) =
          number_pair<is_bf16>(seed + static_cast<std::uint32_t>(thread * 8 + i), spread);
    }
    std::uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[i] = number_pair<is_bf16>(seed + static_cast<std::uint32_t>(1024 + thread * 4 + i), spread);
    }
    ptx::fence_async();
    __syncthreads();
    ptx::wgmma_fence();
    const std::uint64_t tokens = ptx::matrix_operand(tile);
    if constexpr (is_bf16) {
      ptx::wgmma_bf16(sums, w, tokens, step > 0);
    } else {
      ptx::wgmma_f16(sums, w, tokens, step > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_finish(sums);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const int token = n * 8 + lane / 4;
      const unsigned char* const row = tile + token * 128 + lane % 4 * 4;
      const auto at = [&](int half) {
        return *reinterpret_cast<const std::uint32_t*>(row + (half ^ token % 8) * 16);
      };
      float d[4] = {chains[n * 4], chains[n * 4 + 1], chains[n * 4 + 2], chains[n * 4 + 3]};
      if constexpr (is_bf16) {
        ptx::mma_m16n8k16_bf16(d, w, at(0), at(1));
      } else {
        ptx::mma_m16n8k16_f16(d, w, at(0), at(1));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) chains[n * 4 + i] = d[i];
    }
    __syncthreads();
  }
  unsigned differences = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    differences += __float_as_uint(sums[i]) != __float_as_uint(chains[i]) ? 1 : 0;
  }
  return differences;
}

// A build without sm_90a has no wgmma, which is reported as a difference.
__global__ void __launch_bounds__(kFormThreads, 1) float_forms(unsigned* differences) {
  LEQ_BOUNDS(kFormThreads);
  if constexpr (ptx::kHopper) {
    LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
    unsigned char* const tile = dynamic + (1024 - ptx::shared_address(dynamic) % 1024) % 1024;
    const auto block = static_cast<int>(blockIdx.x), spread = block / 2 % kSpreads;
    const std::uint32_t seed = mixed(static_cast<std::uint32_t>(block));
    const unsigned found = block % 2 == 0 ? differences_of<false>(tile, seed, spread)
                                          : differences_of<true>(tile, seed, spread);
    if (found > 0) atomicAdd(differences, found);
  } else {
    if (threadIdx.x == 0) atomicAdd(differences, 1u);
  }
}

}  // namespace

void launch_float_forms(unsigned* differences, rt::Stream& stream) {
  rt::fill_zero(differences, sizeof(unsigned), stream);
  rt::run(stream, {"float_forms", dim3(kFormBlocks), dim3(kFormThreads), kTileBytes + 1024},
          float_forms, differences);
}

}  // namespace leq::LEQ_GPU
