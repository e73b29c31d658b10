// Selects the portable kernels, for processors without kernels of their own.
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

const TileKernels& tile_kernels(Isa) { return tile_kernels_portable(); }

}  // namespace leq
