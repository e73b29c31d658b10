// Gated DeltaNet with 128-bit registers.
#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/delta/delta_lanes.h"
#include "backend/cpu/rows/arm/floats_neon.h"

namespace leq::cpu {
namespace {

struct Register128 : Floats128 {
  static constexpr bool kManyRegisters = true;  // registers suffice for the sums of two tokens
};

}  // namespace

const DeltaKernels& delta_kernels_neon() { return kDeltaKernels<Register128>; }

}  // namespace leq::cpu
