// Which tile kernels a level of x86-64 runs: levels ascend. x86-64-v3 has AVX2, whatever code runs
// on it.
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

const TileKernels& tile_kernels(Isa isa) {
  if (isa == Isa::portable) return tile_kernels_portable();
  return isa >= Isa::avx512 ? tile_kernels_avx512() : tile_kernels_avx2();
}

}  // namespace leq
