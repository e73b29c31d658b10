// The tile kernels in AVX2: 4 x 3 vectors, 12 accumulators of 16 registers.
#include <immintrin.h>

#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

struct F32 {
  using Real = float;
  using Vector = __m256;
  static constexpr std::int64_t kLanes = 8;
  static constexpr int kRows = 4, kVectors = 3;
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static Vector broadcast(float value) { return _mm256_set1_ps(value); }
  static void store(float* to, Vector vector) { _mm256_storeu_ps(to, vector); }
  static Vector add(Vector left, Vector right, Vector sum) {
    return _mm256_fmadd_ps(left, right, sum);
  }
  static void prefetch(const float* line) {
    _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
  }
};

struct F64 {
  using Real = double;
  using Vector = __m256d;
  static constexpr std::int64_t kLanes = 4;
  static constexpr int kRows = 4, kVectors = 3;
  static Vector zero() { return _mm256_setzero_pd(); }
  static Vector load(const double* from) { return _mm256_loadu_pd(from); }
  static Vector broadcast(double value) { return _mm256_set1_pd(value); }
  static void store(double* to, Vector vector) { _mm256_storeu_pd(to, vector); }
  static Vector add(Vector left, Vector right, Vector sum) {
    return _mm256_fmadd_pd(left, right, sum);
  }
  static void prefetch(const double* line) {
    _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
  }
};

#include "quantize/linear_algebra/tile_kernels.inc"

}  // namespace

const TileKernels& tile_kernels_avx2() { return kTileKernels; }

}  // namespace leq
