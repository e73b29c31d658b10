// Limits of AVX-VNNI.
#include "tools/bench/parts/x86/limit_steps.h"

namespace leq::cpu {

const LimitKernels& limit_kernels_avxvnni() {
  static constexpr LimitKernels kKernels = vnni_kernels<32>("vpdpbusd (256 bits)");
  return kKernels;
}

}  // namespace leq::cpu
