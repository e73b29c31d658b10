// All tables of Gated DeltaNet kernels, one for each kernel file. Other code calls
// delta_kernels(isa).
#pragma once

#include "backend/cpu/delta/delta_kernels.h"

namespace leq::cpu {

const DeltaKernels& delta_kernels_portable();
const DeltaKernels& delta_kernels_v3();
const DeltaKernels& delta_kernels_avx2();
const DeltaKernels& delta_kernels_avx512();
const DeltaKernels& delta_kernels_neon();

}  // namespace leq::cpu
