// Codes under superblock scales for processor families without optimized kernels.
#include "backend/cpu/matmul/super_kernels.h"

#include "base/cpu_features.h"

namespace leq::cpu {

SuperKernel super_kernel(Isa) { return super_portable; }

}  // namespace leq::cpu
