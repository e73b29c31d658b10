// The table of the neon matmul kernels.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_neon() {
  static constexpr MatmulKernels kKernels = {.isa = Isa::neon,
                                             .int8_rows = int8_rows_neon,
                                             .int8_groups = int8_groups_neon,
                                             .uint8_rows = uint8_rows_neon,
                                             .uint8_groups = uint8_groups_neon,
                                             .bits4 = bits4_neon,
                                             .bits3 = bits3_neon,
                                             .bits2 = bits2_neon,
                                             .f32 = f32_neon,
                                             .f16 = f16_neon,
                                             .bf16 = bf16_neon,
                                             .int_tile = "4x16",
                                             .float_tile = "3x2"};
  return kKernels;
}

}  // namespace leq::cpu
