// The row kernel tables that there are, one for each file of kernels. Call row_kernels(isa)
// instead.
#pragma once

#include "backend/cpu/rows/row_kernels.h"

namespace leq::cpu {

const RowKernels& row_kernels_portable();
const RowKernels& row_kernels_v3();
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
const RowKernels& row_kernels_neon();

}  // namespace leq::cpu
