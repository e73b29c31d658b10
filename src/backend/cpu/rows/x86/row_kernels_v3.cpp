// The portable row kernels, compiled for x86-64-v3.
#include "backend/cpu/rows/row_kernel_tables.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/rows/row_kernels.inc"
}  // namespace

const RowKernels& row_kernels_v3() { return kKernels; }

}  // namespace leq::cpu
