// Limits of AVX-512 without VNNI.
#include "tools/bench/parts/x86/limit_steps.h"

namespace leq::cpu {

const LimitKernels& limit_kernels_avx512() {
  static constexpr LimitKernels kKernels =
      plain_kernels<64>("vpmaddwd (512 bits)", "vpmaddubsw (512 bits)");
  return kKernels;
}

}  // namespace leq::cpu
