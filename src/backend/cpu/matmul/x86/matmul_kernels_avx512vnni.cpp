// The table of the AVX-512 VNNI matmul kernels.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_avx512vnni() {
  static constexpr MatmulKernels kKernels = {.isa = Isa::avx512vnni,
                                             .int8_rows = int8_rows_avx512vnni,
                                             .int8_groups = int8_groups_avx512vnni,
                                             .uint8_rows = uint8_rows_avx512vnni,
                                             .uint8_groups = uint8_groups_avx512vnni,
                                             .bits4 = bits4_avx512vnni,
                                             .bits3 = bits3_avx512vnni,
                                             .bits2 = bits2_avx512vnni,
                                             .f32 = f32_avx512,
                                             .f16 = f16_avx512,
                                             .bf16 = bf16_avx512,
                                             .int_tile = "12x32",
                                             .float_tile = "6x4"};
  return kKernels;
}

}  // namespace leq::cpu
