// The only level of processor families that have no optimized kernels.
#include "backend/cpu/kernel_levels.h"

#include <array>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/rows/row_kernel_tables.h"

namespace leq::cpu {

std::span<const KernelLevel> kernel_levels() {
  static constexpr std::array kLevels = {
      KernelLevel{Isa::portable, matmul_kernels_portable, row_kernels_portable,
                  attention_kernels_portable, packed_kernels_portable, delta_kernels_portable}};
  return kLevels;
}

}  // namespace leq::cpu
