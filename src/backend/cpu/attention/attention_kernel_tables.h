// The attention kernel tables, one for each kernel file. Code other than attention_kernels(isa)
// does not use them.
#pragma once

#include "backend/cpu/attention/attention_kernels.h"
#include "backend/cpu/attention/packed_kernels.h"

namespace leq::cpu {

const AttentionKernels& attention_kernels_portable();
const AttentionKernels& attention_kernels_v3();
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avxvnni();
const AttentionKernels& attention_kernels_avx512();
const AttentionKernels& attention_kernels_avx512vnni();
const AttentionKernels& attention_kernels_neon();
const AttentionKernels& attention_kernels_dotprod();
const AttentionKernels& attention_kernels_i8mm();

const PackedKernels& packed_kernels_portable();
const PackedKernels& packed_kernels_v3();
const PackedKernels& packed_kernels_avx2();
const PackedKernels& packed_kernels_avx512();
const PackedKernels& packed_kernels_neon();

}  // namespace leq::cpu
