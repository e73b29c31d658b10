// The table of the neon matmul kernels.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_neon() {
  static constexpr MatmulKernels kKernels = {
      Isa::neon,  int8_rows_neon, int8_groups_neon, uint8_rows_neon, uint8_groups_neon, bits4_neon,
      bits3_neon, bits2_neon,     f32_neon,         f16_neon,        bf16_neon,         "4x16",
      "3x2"};
  return kKernels;
}

}  // namespace leq::cpu
