// The portable matmul kernels, compiled for the baseline of the processor family.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/matmul/matmul_kernels.inc"
}  // namespace

const MatmulKernels& matmul_kernels_portable() {
  static constexpr MatmulKernels kKernels = table(Isa::portable);
  return kKernels;
}

}  // namespace leq::cpu
