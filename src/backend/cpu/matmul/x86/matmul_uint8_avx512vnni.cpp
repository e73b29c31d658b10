// uint8 weights times int8 activations, if weights, activations or both have group scales; and the
// tiles for codes of fewer bits after these have been unpacked to bytes.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_groups_avx512.h"

namespace leq::cpu {

namespace {

template <Start kStart>
void run(const IntPanel& panel, const PanelKTile& k_tile, TokenBlock& block) {
  if (panel.groups_a_token_scale == 0) {
    run_k_tile<kStart, Scales::weights>(panel, k_tile, block);
  } else if (panel.group_scales == nullptr) {
    run_k_tile<kStart, Scales::tokens>(panel, k_tile, block);
  } else {
    run_k_tile<kStart, Scales::both>(panel, k_tile, block);
  }
}

}  // namespace

void unsigned_k_tile_avx512vnni(const IntPanel& panel, const PanelKTile& k_tile,
                                TokenBlock& block) noexcept {
  (panel.zeros == nullptr ? run<Start::tokens> : run<Start::zeros>)(panel, k_tile, block);
}

void uint8_groups_avx512vnni(const IntPanel& panel) noexcept {
  run_byte_blocks(panel, unsigned_k_tile_avx512vnni);
}

}  // namespace leq::cpu
