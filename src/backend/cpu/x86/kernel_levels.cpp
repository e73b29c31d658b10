// The levels of x86-64.
#include "backend/cpu/kernel_levels.h"

#include <array>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/rows/row_kernel_tables.h"

namespace leq::cpu {

std::span<const KernelLevel> kernel_levels() {
  static constexpr std::array kLevels = {
      KernelLevel{Isa::portable, matmul_kernels_portable, row_kernels_portable,
                  attention_kernels_portable},
      KernelLevel{Isa::portable_v3, matmul_kernels_v3, row_kernels_v3, attention_kernels_v3},
      KernelLevel{Isa::avx2, matmul_kernels_avx2, row_kernels_avx2, attention_kernels_avx2},
      KernelLevel{Isa::avx512vnni, matmul_kernels_avx512vnni, row_kernels_avx512vnni,
                  attention_kernels_avx512vnni},
      // AMX multiplies integers; all else is AVX-512.
      KernelLevel{Isa::avx512amx, matmul_kernels_avx512amx, row_kernels_avx512vnni,
                  attention_kernels_avx512vnni}};
  return kLevels;
}

}  // namespace leq::cpu
