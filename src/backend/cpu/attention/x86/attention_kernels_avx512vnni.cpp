// AVX-512's attention kernels, but int8 keys are multiplied in quads of codes by vpdpbusd.
#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/attention/x86/int8_scores_avx512.h"

namespace leq::cpu {
namespace {

struct QuadProducts {
  static constexpr int most_blocks(int queries) { return queries == 1 ? 1 : 4; }

  // In assembly, because g++ 12 spills sums, if there are many, to the stack around the intrinsic.
  template <int R, int B>
  static inline __attribute__((always_inline)) void add(const std::uint8_t* keys,
                                                        std::int64_t stride,
                                                        const std::int32_t (&quads)[R],
                                                        __m512i (&sums)[R][B]) {
    __m512i key[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) key[b] = _mm512_loadu_si512(keys + b * stride);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i quad = _mm512_set1_epi32(quads[r]);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sums[r][b]) : "v"(key[b]), "v"(quad));
      }
    }
  }
};

AttentionKernels with_quads() {
  AttentionKernels all = attention_kernels_avx512();
  all.kv[2].scores = int8_scores<QuadProducts>;
  return all;
}

}  // namespace

const AttentionKernels& attention_kernels_avx512vnni() {
  static const AttentionKernels kAll = with_quads();
  return kAll;
}

}  // namespace leq::cpu
