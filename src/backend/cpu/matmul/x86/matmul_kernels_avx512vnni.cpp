// The table of the AVX-512 VNNI matmul kernels.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_avx512vnni() {
  static constexpr MatmulKernels kKernels = {Isa::avx512vnni,
                                             int8_rows_avx512vnni,
                                             int8_groups_avx512vnni,
                                             uint8_rows_avx512vnni,
                                             uint8_groups_avx512vnni,
                                             bits4_avx512vnni,
                                             bits3_avx512vnni,
                                             bits2_avx512vnni,
                                             f32_avx512vnni,
                                             f16_avx512vnni,
                                             bf16_avx512vnni,
                                             "12x32",
                                             "6x4"};
  return kKernels;
}

}  // namespace leq::cpu
