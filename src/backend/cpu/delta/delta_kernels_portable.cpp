// The portable kernels of Gated DeltaNet, compiled for the baseline of the processor family.
#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/operations.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/delta/delta_kernels.inc"
}  // namespace

const DeltaKernels& delta_kernels_portable() { return kKernels; }

}  // namespace leq::cpu
