// The kernel levels: a file for each instruction set, of which a build has those of its processor
// family (x86, arm, generic); and what one level uses of another. Only kernel_level() is for
// others.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace leq::cpu {

// Null if the build does not have the level. Each family defines it (levels.cpp).
const KernelLevel* built_level(Isa isa);

const KernelLevel& level_portable();
const KernelLevel& level_v3();  // the portable kernels, compiled for x86-64-v3
const KernelLevel& level_avx2();
const KernelLevel& level_avxvnni();
const KernelLevel& level_avx512();
const KernelLevel& level_avx512vnni();
const KernelLevel& level_avx512amx();
const KernelLevel& level_neon();
const KernelLevel& level_dotprod();
const KernelLevel& level_i8mm();

// Integer matmuls for few tokens; for more tokens the kernels of blocks.h are used.
const MatmulKernels& few_tokens_avx2();
// Integer matmuls; the level adds those of float weights.
MatmulKernels int_matmuls_avx2() noexcept;
MatmulKernels int_matmuls_avx512() noexcept;
void super_avx512vnni(const SuperPanel& panel) noexcept;  // of at least 13 tokens
void super_avx512amx(const SuperPanel& panel) noexcept;

}  // namespace leq::cpu
