// The kernels of each instruction set of this processor family. cpu/x86, cpu/arm and cpu/generic
// each define a list, of which the build compiles one.
#pragma once

#include <span>

#include "backend/cpu/attention/attention_kernels.h"
#include "backend/cpu/attention/packed_kernels.h"
#include "backend/cpu/delta/delta_kernels.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/rows/row_kernels.h"
#include "base/cpu_features.h"

namespace leq::cpu {

struct KernelLevel {
  Isa isa;
  const MatmulKernels& (*matmul)();
  const RowKernels& (*rows)();
  const AttentionKernels& (*attention)();
  const PackedKernels& (*packed)();
  const DeltaKernels& (*delta)();
};

// All levels that were built, including those that this processor does not support.
std::span<const KernelLevel> kernel_levels();

}  // namespace leq::cpu
