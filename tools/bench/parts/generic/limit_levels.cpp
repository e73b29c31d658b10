// The portable level, for processors without loops of their own.
#include "tools/bench/parts/limit_kernels.h"

namespace leq::cpu {

std::span<const LimitLevel> limit_levels() {
  static constexpr std::array kLevels = {LimitLevel{Isa::portable, limit_kernels_portable}};
  return kLevels;
}

}  // namespace leq::cpu
