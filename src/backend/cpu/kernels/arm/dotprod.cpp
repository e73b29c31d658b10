// NEON's kernels, but bytes are multiplied in quads by sdot.
#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/kernels/arm/matmul_panel.h"
#include "backend/cpu/kernels/arm/quad_scores.h"
#include "backend/cpu/kernels/levels.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

struct Step {
  template <int kQuad>
  static inline __attribute__((always_inline)) int32x4_t add(int32x4_t c, int8x16_t codes,
                                                             int8x16_t x) {
    return vdotq_laneq_s32(c, codes, x, kQuad);
  }
};

// Codes are multiplied as signed bytes: codes minus 128, which is added back afterwards.
struct SignedQuads {
  static int32x4_t add(int32x4_t sum, uint8x16_t codes, int8x16_t query) {
    return vdotq_s32(sum, vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(128))), query);
  }
  static int32x4_t total(int32x4_t sum, std::int32_t query_sum) {
    return vaddq_s32(sum, vdupq_n_s32(128 * query_sum));
  }
};

MatmulKernels matmuls() {
  MatmulKernels kernels = int_matmuls<Step>(Isa::dotprod);
  const MatmulKernels& neon = *level_neon().matmul;
  kernels.f32 = neon.f32;
  kernels.f16 = neon.f16;
  kernels.bf16 = neon.bf16;
  kernels.float_tile = neon.float_tile;
  return kernels;
}

AttentionKernels with_quads() {
  AttentionKernels kernels = *level_neon().attention;
  kernels.kv[2].scores = quad_scores<SignedQuads>;
  return kernels;
}

}  // namespace

const KernelLevel& level_dotprod() {
  static const MatmulKernels kMatmuls = matmuls();
  static const AttentionKernels kAttention = with_quads();
  const KernelLevel& neon = level_neon();
  static const KernelLevel kLevel = {&kMatmuls, neon.rows, &kAttention, neon.packed, neon.delta};
  return kLevel;
}

}  // namespace leq::cpu
