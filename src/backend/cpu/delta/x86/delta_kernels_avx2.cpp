// Gated DeltaNet with 256-bit registers.
#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/delta/delta_lanes.h"
#include "backend/cpu/rows/x86/floats_avx2.h"

namespace leq::cpu {
namespace {

struct Register256 : Floats256 {
  static constexpr bool kManyRegisters = false;  // registers do not suffice for two tokens' sums
};

}  // namespace

const DeltaKernels& delta_kernels_avx2() { return kDeltaKernels<Register256>; }

}  // namespace leq::cpu
