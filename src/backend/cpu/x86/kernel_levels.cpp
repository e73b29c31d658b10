// The levels of x86-64.
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
                                         KernelLevel{.isa = Isa::portable_v3,
                                                     .matmul = matmul_kernels_v3,
                                                     .rows = row_kernels_v3,
                                                     .attention = attention_kernels_v3,
                                                     .packed = packed_kernels_v3,
                                                     .delta = delta_kernels_v3},
                                         KernelLevel{.isa = Isa::avx2,
                                                     .matmul = matmul_kernels_avx2,
                                                     .rows = row_kernels_avx2,
                                                     .attention = attention_kernels_avx2,
                                                     .packed = packed_kernels_avx2,
                                                     .delta = delta_kernels_avx2},
                                         // Uses the AVX2 kernels except for integer products.
                                         KernelLevel{.isa = Isa::avxvnni,
                                                     .matmul = matmul_kernels_avxvnni,
                                                     .rows = row_kernels_avx2,
                                                     .attention = attention_kernels_avxvnni,
                                                     .packed = packed_kernels_avx2,
                                                     .delta = delta_kernels_avx2},
                                         KernelLevel{.isa = Isa::avx512,
                                                     .matmul = matmul_kernels_avx512,
                                                     .rows = row_kernels_avx512,
                                                     .attention = attention_kernels_avx512,
                                                     .packed = packed_kernels_avx512,
                                                     .delta = delta_kernels_avx512},
                                         KernelLevel{.isa = Isa::avx512vnni,
                                                     .matmul = matmul_kernels_avx512vnni,
                                                     .rows = row_kernels_avx512,
                                                     .attention = attention_kernels_avx512vnni,
                                                     .packed = packed_kernels_avx512,
                                                     .delta = delta_kernels_avx512},
                                         // Uses the AVX-512 kernels except for integer matmuls.
                                         KernelLevel{.isa = Isa::avx512amx,
                                                     .matmul = matmul_kernels_avx512amx,
                                                     .rows = row_kernels_avx512,
                                                     .attention = attention_kernels_avx512vnni,
                                                     .packed = packed_kernels_avx512,
                                                     .delta = delta_kernels_avx512}};
  return kLevels;
}

}  // namespace leq::cpu
