#include "backend/cpu/kernels/levels.h"

#include "base/cpu_features.h"

namespace leq::cpu {

const KernelLevel* built_level(Isa isa) {
  return isa == Isa::portable ? &level_portable() : nullptr;
}

}  // namespace leq::cpu
