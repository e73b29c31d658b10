// The kernels of each instruction set of this processor family: one list in each of cpu/x86,
// cpu/arm and cpu/generic; the build compiles one of them.
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

// All levels that are built, whether this processor supports them or not.
std::span<const KernelLevel> kernel_levels();

}  // namespace leq::cpu
