// The tile kernels for any processor, with vectors of 16 bytes that the compiler may map to vector
// instructions; and the choice of a level.
#include "quantize/linear_algebra/tile_kernels.h"

#include <cmath>

namespace leq {
namespace {

template <class Vector>
Vector multiply_add(Vector left, Vector right, Vector sum) {
  Vector out = {};
  for (std::size_t i = 0; i < sizeof(Vector) / sizeof left[0]; ++i) {
    out[i] = std::fma(left[i], right[i], sum[i]);
  }
  return out;
}

#include "quantize/linear_algebra/tile_kernels.inc"

}  // namespace

const TileKernels& tile_kernels_portable() {
  static constexpr TileKernels kKernels = tile_kernels_of<16, 2>();
  return kKernels;
}

const TileKernels& tile_kernels() {
  static const TileKernels& chosen = tile_kernels(chosen_isa());
  return chosen;
}

}  // namespace leq
