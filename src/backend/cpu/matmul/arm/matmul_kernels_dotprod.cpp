// The table of the dotprod matmul kernels. Float weights use the NEON kernels.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_dotprod() {
  static constexpr MatmulKernels kKernels = {.isa = Isa::dotprod,
                                             .int8_rows = int8_rows_dotprod,
                                             .int8_groups = int8_groups_dotprod,
                                             .uint8_rows = uint8_rows_dotprod,
                                             .uint8_groups = uint8_groups_dotprod,
                                             .bits4 = bits4_dotprod,
                                             .bits3 = bits3_dotprod,
                                             .bits2 = bits2_dotprod,
                                             .f32 = f32_neon,
                                             .f16 = f16_neon,
                                             .bf16 = bf16_neon,
                                             .int_tile = "4x16",
                                             .float_tile = "3x2"};
  return kKernels;
}

}  // namespace leq::cpu
