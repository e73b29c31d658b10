// Limits of AVX2.
#include "tools/bench/parts/x86/limit_steps.h"

namespace leq::cpu {

const LimitKernels& limit_kernels_avx2() {
  static constexpr LimitKernels kKernels = plain_kernels<32>("vpmaddwd", "vpmaddubsw");
  return kKernels;
}

}  // namespace leq::cpu
