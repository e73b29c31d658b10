// Gated DeltaNet with 512-bit registers.
#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/delta/delta_lanes.h"
#include "backend/cpu/rows/x86/floats_avx512.h"

namespace leq::cpu {
namespace {

struct Register512 : Floats512 {
  static constexpr bool kManyRegisters = true;  // registers suffice for the sums of two tokens
};

}  // namespace

const DeltaKernels& delta_kernels_avx512() { return kDeltaKernels<Register512>; }

}  // namespace leq::cpu
