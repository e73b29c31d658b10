// Codes under superblock scales where no instruction set has a kernel of its own yet.
#include "backend/cpu/matmul/super_kernels.h"

#include "base/cpu_features.h"

namespace leq::cpu {

SuperKernel super_kernel(Isa) { return super_portable; }

}  // namespace leq::cpu
