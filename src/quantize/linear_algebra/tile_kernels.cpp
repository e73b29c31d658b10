#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

const TileKernels& tile_kernels() {
  static const TileKernels& chosen = tile_kernels(chosen_isa());
  return chosen;
}

}  // namespace leq
