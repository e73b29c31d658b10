#include "backend/cpu/kernels/kernels.h"

#include "backend/cpu/kernels/levels.h"
#include "base/cpu_features.h"
#include "base/error.h"

namespace leq::cpu {

const KernelLevel& kernel_level(Isa isa) {
  const KernelLevel* const level = built_level(isa);
  require(level != nullptr, ErrorKind::bad_setting, "instruction set ", isa_name(isa),
          ": not built for this processor family; try portable");
  return *level;
}

}  // namespace leq::cpu
