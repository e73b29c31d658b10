// Selects the tile kernels for an instruction-set level of x86-64. Level x86-64-v3 uses the AVX2
// kernels, because every such processor supports AVX2.
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

const TileKernels& tile_kernels(Isa isa) {
  if (isa == Isa::portable) return tile_kernels_portable();
  return isa >= Isa::avx512 ? tile_kernels_avx512() : tile_kernels_avx2();
}

}  // namespace leq
