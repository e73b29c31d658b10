// Picks the matmul kernels of an instruction set.
#include "backend/cpu/matmul_kernels.h"

#include <array>

#include "backend/cpu/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels(Isa isa) {
  constexpr std::array kTables = {matmul_kernels_portable, matmul_kernels_v3, matmul_kernels_avx2,
                                  matmul_kernels_avx512vnni};
  return kTables[static_cast<std::size_t>(isa)]();
}

}  // namespace leq::cpu
