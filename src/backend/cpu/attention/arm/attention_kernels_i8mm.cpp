// NEON's attention kernels, but int8 keys are multiplied in quads of unsigned codes and signed
// query codes.
#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/attention/attention_kernel_tables.h"

namespace leq::cpu {
namespace {

int32x4_t add_quad(int32x4_t sum, uint8x16_t codes, int8x16_t query) {
  return vusdotq_s32(sum, codes, query);
}
int32x4_t total(int32x4_t sum, std::int32_t) { return sum; }
#include "backend/cpu/attention/arm/int8_scores.inc"

AttentionKernels with_quads() {
  AttentionKernels all = attention_kernels_neon();
  all.kv[2].scores = quad_scores;
  return all;
}

}  // namespace

const AttentionKernels& attention_kernels_i8mm() {
  static const AttentionKernels kAll = with_quads();
  return kAll;
}

}  // namespace leq::cpu
