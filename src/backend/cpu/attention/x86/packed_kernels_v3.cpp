// The portable kernels of packed codes, compiled for x86-64-v3.
#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/attention/packed_kernels.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/attention/packed_kernels.inc"
}  // namespace

const PackedKernels& packed_kernels_v3() { return kPackedKernels; }

}  // namespace leq::cpu
