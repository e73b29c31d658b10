// The levels of x86-64. Level x86-64-v3 uses the limits of AVX2, which all its processors support.
#include "tools/bench/parts/x86/limit_steps.h"

namespace leq::cpu {

std::span<const LimitLevel> limit_levels() {
  static constexpr std::array kLevels = {LimitLevel{Isa::portable, limit_kernels_portable},
                                         LimitLevel{Isa::portable_v3, limit_kernels_avx2},
                                         LimitLevel{Isa::avx2, limit_kernels_avx2},
                                         LimitLevel{Isa::avxvnni, limit_kernels_avxvnni},
                                         LimitLevel{Isa::avx512, limit_kernels_avx512},
                                         LimitLevel{Isa::avx512vnni, limit_kernels_avx512vnni},
                                         LimitLevel{Isa::avx512amx, limit_kernels_avx512amx}};
  return kLevels;
}

}  // namespace leq::cpu
