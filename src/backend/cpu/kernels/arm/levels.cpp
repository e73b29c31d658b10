#include "backend/cpu/kernels/levels.h"

#include "base/cpu_features.h"

namespace leq::cpu {

const KernelLevel* built_level(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return &level_portable();
    case Isa::neon:
      return &level_neon();
    case Isa::dotprod:
      return &level_dotprod();
    case Isa::i8mm:
      return &level_i8mm();
    default:
      return nullptr;
  }
}

}  // namespace leq::cpu
