// The tile kernels in AVX2: 4 x 3 vectors, 12 accumulators of 16 registers.
#include <immintrin.h>

#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

__m256 multiply_add(__m256 left, __m256 right, __m256 sum) {
  return _mm256_fmadd_ps(left, right, sum);
}
__m256d multiply_add(__m256d left, __m256d right, __m256d sum) {
  return _mm256_fmadd_pd(left, right, sum);
}

#include "quantize/linear_algebra/tile_kernels.inc"

}  // namespace

const TileKernels& tile_kernels_avx2() {
  static constexpr TileKernels kKernels = tile_kernels_of<32, 4>();
  return kKernels;
}

}  // namespace leq
