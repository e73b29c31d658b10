// The table of the AMX matmul kernels. Float weights and few tokens are those of AVX-512 VNNI.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_avx512amx() {
  static constexpr MatmulKernels kKernels = {Isa::avx512amx,
                                             int8_rows_avx512amx,
                                             int8_groups_avx512amx,
                                             uint8_rows_avx512amx,
                                             uint8_groups_avx512amx,
                                             bits4_avx512amx,
                                             bits3_avx512amx,
                                             bits2_avx512amx,
                                             f32_avx512vnni,
                                             f16_avx512vnni,
                                             bf16_avx512vnni,
                                             "32x32",
                                             "6x4"};
  return kKernels;
}

}  // namespace leq::cpu
