// int8 weights times int8 activations where the weights, the activations or both have group scales.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_groups_avx512.h"

namespace leq::cpu {
namespace {

template <Scales kScales>
void run(const IntPanel& panel) {
  const std::int64_t blocks = (panel.tokens + kBlockTokens - 1) / kBlockTokens;
  TokenBlock block;
  block.sums = reinterpret_cast<float*>(panel.scratch);
  for (std::int64_t b = 0; b < blocks; ++b) {
    block.token = panel.tokens * b / blocks;
    block.tokens = panel.tokens * (b + 1) / blocks - block.token;
    clear(block.sums, block.tokens * 64);
    PanelPiece piece;
    for (std::int64_t k = 0; k < panel.columns; k += kPieceColumns) {
      piece.codes = panel.codes + k * 64;
      piece.first = k;
      piece.columns = panel.columns - k < kPieceColumns ? panel.columns - k : kPieceColumns;
      run_piece<false, kScales>(panel, piece, block);
    }
    finish_block(panel, block);
  }
}

}  // namespace

void int8_groups_avx512vnni(const IntPanel& panel) noexcept {
  if (panel.groups_a_token_scale == 0) {
    run<Scales::weights>(panel);
  } else if (panel.group_scales == nullptr) {
    run<Scales::tokens>(panel);
  } else {
    run<Scales::both>(panel);
  }
}

}  // namespace leq::cpu
