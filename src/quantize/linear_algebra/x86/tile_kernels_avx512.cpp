// The tile kernels in AVX-512: 8 x 3 vectors, 24 accumulators of 32 registers.
#include <immintrin.h>

#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

__m512 multiply_add(__m512 left, __m512 right, __m512 sum) {
  return _mm512_fmadd_ps(left, right, sum);
}
__m512d multiply_add(__m512d left, __m512d right, __m512d sum) {
  return _mm512_fmadd_pd(left, right, sum);
}

#include "quantize/linear_algebra/tile_kernels.inc"

}  // namespace

const TileKernels& tile_kernels_avx512() {
  static constexpr TileKernels kKernels = tile_kernels_of<64, 8>();
  return kKernels;
}

}  // namespace leq
