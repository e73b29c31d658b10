// int8 and uint8 weights times int8 activations, if the weights, the activations or both have group
// scales.
#include "backend/cpu/matmul/x86/matmul_groups_avx512amx.h"
#include "backend/cpu/matmul/matmul_kernel_tables.h"

namespace leq::cpu {
namespace {

template <Signs kSigns>
void run(const IntPanel& panel) {
  run_groups<kSigns>(panel, [&](std::int64_t first, std::int64_t columns, KTile& k_tile) {
    k_tile.codes = panel.codes + first * 64;
    k_tile.next = k_tile.codes + columns * 64;
    k_tile.next_bytes = columns * 64;
    if (first + columns >= panel.columns) {
      k_tile.next = panel.next_codes;
      k_tile.next_bytes = panel.next_bytes < columns * 64 ? panel.next_bytes : columns * 64;
    }
  });
}

}  // namespace

void int8_groups_avx512amx(const IntPanel& panel) noexcept {
  panel.tokens < kTileTokens ? int8_groups_avx512vnni(panel) : run<Signs::input_unsigned>(panel);
}
void uint8_groups_avx512amx(const IntPanel& panel) noexcept {
  panel.tokens < kTileTokens ? uint8_groups_avx512vnni(panel) : run<Signs::weight_unsigned>(panel);
}

}  // namespace leq::cpu
