// The tile kernels in NEON: 8 x 3 vectors, 24 accumulators of 32 registers.
#include <arm_neon.h>

#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

float32x4_t multiply_add(float32x4_t left, float32x4_t right, float32x4_t sum) {
  return vfmaq_f32(sum, left, right);
}
float64x2_t multiply_add(float64x2_t left, float64x2_t right, float64x2_t sum) {
  return vfmaq_f64(sum, left, right);
}

#include "quantize/linear_algebra/tile_kernels.inc"

}  // namespace

const TileKernels& tile_kernels_neon() {
  static constexpr TileKernels kKernels = tile_kernels_of<16, 8>();
  return kKernels;
}

const TileKernels& tile_kernels(Isa isa) {
  return isa == Isa::portable ? tile_kernels_portable() : tile_kernels_neon();
}

}  // namespace leq
