// The kernels of codes under superblock scales on 64-bit ARM; i8mm has no kernel of its own.
#include "backend/cpu/matmul/super_kernels.h"

#include "base/cpu_features.h"

namespace leq::cpu {

SuperKernel super_kernel(Isa isa) {
  switch (isa) {
    case Isa::neon:
      return super_neon;
    case Isa::dotprod:
    case Isa::i8mm:
      return super_dotprod;
    default:
      return super_portable;
  }
}

}  // namespace leq::cpu
