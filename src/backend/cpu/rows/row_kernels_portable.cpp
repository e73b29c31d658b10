// The portable row kernels, compiled for the baseline of the processor family.
#include "backend/cpu/rows/row_kernel_tables.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/rows/row_kernels.inc"
}  // namespace

const RowKernels& row_kernels_portable() { return kKernels; }

}  // namespace leq::cpu
