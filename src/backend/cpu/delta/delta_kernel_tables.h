// The tables of Gated DeltaNet kernels, one for each kernel file. Code other than
// delta_kernels(isa) does not use them.
#pragma once

#include "backend/cpu/delta/delta_kernels.h"

namespace leq::cpu {

const DeltaKernels& delta_kernels_portable();
const DeltaKernels& delta_kernels_v3();
const DeltaKernels& delta_kernels_avx2();
const DeltaKernels& delta_kernels_avx512();
const DeltaKernels& delta_kernels_neon();

}  // namespace leq::cpu
