// The kernels of codes under superblock scales on x86-64; AVX-VNNI has no kernel of its own.
#include "backend/cpu/matmul/super_kernels.h"

#include "base/cpu_features.h"

namespace leq::cpu {

SuperKernel super_kernel(Isa isa) {
  switch (isa) {
    case Isa::portable_v3:
      return super_v3;
    case Isa::avx2:
    case Isa::avxvnni:
      return super_avx2;
    case Isa::avx512:
      return super_avx512;
    case Isa::avx512vnni:
      return super_avx512vnni;
    case Isa::avx512amx:
      return super_avx512amx;
    default:
      return super_portable;
  }
}

}  // namespace leq::cpu
