// The levels of aarch64 and their limit loops.
#include "tools/bench/parts/arm/limit_steps.h"

namespace leq::cpu {

std::span<const LimitLevel> limit_levels() {
  static constexpr std::array kLevels = {
      LimitLevel{Isa::portable, limit_kernels_portable}, LimitLevel{Isa::neon, limit_kernels_neon},
      LimitLevel{Isa::dotprod, limit_kernels_dotprod}, LimitLevel{Isa::i8mm, limit_kernels_i8mm}};
  return kLevels;
}

}  // namespace leq::cpu
