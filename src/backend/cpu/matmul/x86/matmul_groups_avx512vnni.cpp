// int8 weights times int8 activations, if weights, activations or both have group scales.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_groups_avx512.h"

namespace leq::cpu {

void int8_groups_avx512vnni(const IntPanel& panel) noexcept {
  if (panel.groups_a_token_scale == 0) {
    run_byte_blocks(panel, run_k_tile<Start::weights, Scales::weights>);
  } else if (panel.group_scales == nullptr) {
    run_byte_blocks(panel, run_k_tile<Start::weights, Scales::tokens>);
  } else {
    run_byte_blocks(panel, run_k_tile<Start::weights, Scales::both>);
  }
}

}  // namespace leq::cpu
