// The portable attention kernels, compiled for the baseline of the processor family.
#include "backend/cpu/attention/attention_kernel_tables.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/attention/attention_kernels.inc"
}  // namespace

const AttentionKernels& attention_kernels_portable() { return kKernels; }

}  // namespace leq::cpu
