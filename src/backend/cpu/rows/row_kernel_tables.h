// The row kernel tables, one for each kernel file. Code other than row_kernels(isa) does not use
// them.
#pragma once

#include "backend/cpu/rows/row_kernels.h"

namespace leq::cpu {

const RowKernels& row_kernels_portable();
const RowKernels& row_kernels_v3();
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
const RowKernels& row_kernels_neon();

}  // namespace leq::cpu
