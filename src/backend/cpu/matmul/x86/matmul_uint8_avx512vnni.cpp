// uint8 weights times int8 activations, if weights, activations or both have group scales; and the
// tiles for codes of fewer bits after these have been unpacked to bytes.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_groups_avx512.h"

namespace leq::cpu {

void unsigned_k_tile_avx512vnni(const IntPanel& panel, const PanelKTile& k_tile,
                                TokenBlock& block) noexcept {
  (panel.zeros == nullptr ? run_k_tile<Start::tokens> : run_k_tile<Start::zeros>)(panel, k_tile,
                                                                                  block);
}

const KTileKernel* unsigned_wide_tiles_avx512vnni(const IntPanel& panel) noexcept {
  const auto fetch = static_cast<std::size_t>(panel.fetch);
  return panel.zeros == nullptr ? kWideTiles<Start::tokens>[fetch]
                                : kWideTiles<Start::zeros>[fetch];
}

void uint8_groups_avx512vnni(const IntPanel& panel) noexcept {
  run_byte_blocks(panel, unsigned_k_tile_avx512vnni);
}

}  // namespace leq::cpu
