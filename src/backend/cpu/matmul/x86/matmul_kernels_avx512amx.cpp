// The table of the AMX matmul kernels. Float weights and few tokens use the AVX-512 VNNI kernels.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_avx512amx() {
  static constexpr MatmulKernels kKernels = {.isa = Isa::avx512amx,
                                             .int8_rows = int8_rows_avx512amx,
                                             .int8_groups = int8_groups_avx512amx,
                                             .uint8_rows = uint8_rows_avx512amx,
                                             .uint8_groups = uint8_groups_avx512amx,
                                             .bits4 = bits4_avx512amx,
                                             .bits3 = bits3_avx512amx,
                                             .bits2 = bits2_avx512amx,
                                             .f32 = f32_avx512,
                                             .f16 = f16_avx512,
                                             .bf16 = bf16_avx512,
                                             .int_tile = "32x32",
                                             .float_tile = "6x4"};
  return kKernels;
}

}  // namespace leq::cpu
