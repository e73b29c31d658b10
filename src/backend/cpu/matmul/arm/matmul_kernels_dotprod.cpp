// The table of the dotprod matmul kernels. Floats take those of NEON.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_dotprod() {
  static constexpr MatmulKernels kKernels = {Isa::dotprod,
                                             int8_rows_dotprod,
                                             int8_groups_dotprod,
                                             uint8_rows_dotprod,
                                             uint8_groups_dotprod,
                                             bits4_dotprod,
                                             bits3_dotprod,
                                             bits2_dotprod,
                                             f32_neon,
                                             f16_neon,
                                             bf16_neon,
                                             "4x16",
                                             "3x2"};
  return kKernels;
}

}  // namespace leq::cpu
