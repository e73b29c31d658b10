// Limits of AVX-512 with VNNI.
#include "tools/bench/parts/x86/limit_steps.h"

namespace leq::cpu {

const LimitKernels& limit_kernels_avx512vnni() {
  static constexpr LimitKernels kKernels = vnni_kernels<64>("vpdpbusd");
  return kKernels;
}

}  // namespace leq::cpu
