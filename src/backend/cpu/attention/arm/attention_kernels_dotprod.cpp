// NEON's attention kernels, but int8 keys are multiplied by sdot in quads of signed codes: codes
// minus 128, which is added back afterwards.
#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/attention/attention_kernel_tables.h"

namespace leq::cpu {
namespace {

int32x4_t add_quad(int32x4_t sum, uint8x16_t codes, int8x16_t query) {
  return vdotq_s32(sum, vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(128))), query);
}
int32x4_t total(int32x4_t sum, std::int32_t query_sum) {
  return vaddq_s32(sum, vdupq_n_s32(128 * query_sum));
}
#include "backend/cpu/attention/arm/int8_scores.inc"

AttentionKernels with_quads() {
  AttentionKernels all = attention_kernels_neon();
  all.kv[2].scores = quad_scores;
  return all;
}

}  // namespace

const AttentionKernels& attention_kernels_dotprod() {
  static const AttentionKernels kAll = with_quads();
  return kAll;
}

}  // namespace leq::cpu
