// The portable matmul kernels, compiled for x86-64-v3.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/matmul/matmul_kernels.inc"
}  // namespace

const MatmulKernels& matmul_kernels_v3() {
  static constexpr MatmulKernels kKernels = table(Isa::portable_v3);
  return kKernels;
}

}  // namespace leq::cpu
