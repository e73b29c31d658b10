// The portable attention kernels, compiled for x86-64-v3.
#include "backend/cpu/attention/attention_kernel_tables.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/attention/attention_kernels.inc"
}  // namespace

const AttentionKernels& attention_kernels_v3() { return kKernels; }

}  // namespace leq::cpu
