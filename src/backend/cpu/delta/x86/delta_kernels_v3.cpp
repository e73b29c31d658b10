// The portable kernels of Gated DeltaNet, compiled for x86-64-v3.
#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/operations.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/delta/delta_kernels.inc"
}  // namespace

const DeltaKernels& delta_kernels_v3() { return kKernels; }

}  // namespace leq::cpu
