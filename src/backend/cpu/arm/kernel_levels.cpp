// The levels of aarch64. The baseline includes NEON, which the compiler uses in portable kernels.
#include "backend/cpu/kernel_levels.h"

#include <array>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/rows/row_kernel_tables.h"

namespace leq::cpu {

std::span<const KernelLevel> kernel_levels() {
  static constexpr std::array kLevels = {KernelLevel{.isa = Isa::portable,
                                                     .matmul = matmul_kernels_portable,
                                                     .rows = row_kernels_portable,
                                                     .attention = attention_kernels_portable,
                                                     .packed = packed_kernels_portable,
                                                     .delta = delta_kernels_portable},
                                         KernelLevel{.isa = Isa::neon,
                                                     .matmul = matmul_kernels_neon,
                                                     .rows = row_kernels_neon,
                                                     .attention = attention_kernels_neon,
                                                     .packed = packed_kernels_neon,
                                                     .delta = delta_kernels_neon},
                                         KernelLevel{.isa = Isa::dotprod,
                                                     .matmul = matmul_kernels_dotprod,
                                                     .rows = row_kernels_neon,
                                                     .attention = attention_kernels_dotprod,
                                                     .packed = packed_kernels_neon,
                                                     .delta = delta_kernels_neon},
                                         KernelLevel{.isa = Isa::i8mm,
                                                     .matmul = matmul_kernels_i8mm,
                                                     .rows = row_kernels_neon,
                                                     .attention = attention_kernels_i8mm,
                                                     .packed = packed_kernels_neon,
                                                     .delta = delta_kernels_neon}};
  return kLevels;
}

}  // namespace leq::cpu
