// Picks the row kernels of an instruction set.
#include "backend/cpu/row_kernels.h"

#include <array>

#include "backend/cpu/row_kernel_tables.h"

namespace leq::cpu {

const RowKernels& row_kernels(Isa isa) {
  constexpr std::array kTables = {row_kernels_portable, row_kernels_v3, row_kernels_avx2,
                                  row_kernels_avx512vnni};
  return kTables[static_cast<std::size_t>(isa)]();
}

}  // namespace leq::cpu
