// int8 weights times int8 activations, if weights, activations or both have group scales.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_groups_avx512.h"

namespace leq::cpu {

void int8_groups_avx512vnni(const IntPanel& panel) noexcept {
  run_byte_blocks(panel, run_k_tile<Start::weights>);
}

}  // namespace leq::cpu
