// Selects the tile kernels for an instruction-set level of aarch64.
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

const TileKernels& tile_kernels(Isa isa) {
  return isa == Isa::portable ? tile_kernels_portable() : tile_kernels_neon();
}

}  // namespace leq
