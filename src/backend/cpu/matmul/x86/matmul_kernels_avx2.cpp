// The table of the AVX2 matmul kernels.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_avx2() {
  static constexpr MatmulKernels kKernels = {.isa = Isa::avx2,
                                             .int8_rows = int8_rows_avx2,
                                             .int8_groups = int8_groups_avx2,
                                             .uint8_rows = uint8_rows_avx2,
                                             .uint8_groups = uint8_groups_avx2,
                                             .bits4 = bits4_avx2,
                                             .bits3 = bits3_avx2,
                                             .bits2 = bits2_avx2,
                                             .f32 = f32_avx2,
                                             .f16 = f16_avx2,
                                             .bf16 = bf16_avx2,
                                             .int_tile = "3x16",
                                             .float_tile = "3x2"};
  return kKernels;
}

}  // namespace leq::cpu
