// Selects the tile kernels of a level of x86-64; levels ascend. Level x86-64-v3 takes the AVX2
// kernels, which every such processor supports.
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

const TileKernels& tile_kernels(Isa isa) {
  if (isa == Isa::portable) return tile_kernels_portable();
  return isa >= Isa::avx512 ? tile_kernels_avx512() : tile_kernels_avx2();
}

}  // namespace leq
