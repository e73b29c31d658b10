#include "backend/cpu/kernels/levels.h"

#include "base/cpu_features.h"

namespace leq::cpu {

const KernelLevel* built_level(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return &level_portable();
    case Isa::portable_v3:
      return &level_v3();
    case Isa::avx2:
      return &level_avx2();
    case Isa::avxvnni:
      return &level_avxvnni();
    case Isa::avx512:
      return &level_avx512();
    case Isa::avx512vnni:
      return &level_avx512vnni();
    case Isa::avx512amx:
      return &level_avx512amx();
    default:
      return nullptr;
  }
}

}  // namespace leq::cpu
