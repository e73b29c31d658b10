// The tile kernels in AVX-512: 8 x 3 vectors, 24 accumulators of 32 registers.
#include <immintrin.h>

#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

struct F32 {
  using Real = float;
  using Vector = __m512;
  static constexpr std::int64_t kLanes = 16;
  static constexpr int kRows = 8, kVectors = 3;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static Vector broadcast(float value) { return _mm512_set1_ps(value); }
  static void store(float* to, Vector vector) { _mm512_storeu_ps(to, vector); }
  static Vector add(Vector left, Vector right, Vector sum) {
    return _mm512_fmadd_ps(left, right, sum);
  }
  static void prefetch(const float* line) {
    _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
  }
};

struct F64 {
  using Real = double;
  using Vector = __m512d;
  static constexpr std::int64_t kLanes = 8;
  static constexpr int kRows = 8, kVectors = 3;
  static Vector zero() { return _mm512_setzero_pd(); }
  static Vector load(const double* from) { return _mm512_loadu_pd(from); }
  static Vector broadcast(double value) { return _mm512_set1_pd(value); }
  static void store(double* to, Vector vector) { _mm512_storeu_pd(to, vector); }
  static Vector add(Vector left, Vector right, Vector sum) {
    return _mm512_fmadd_pd(left, right, sum);
  }
  static void prefetch(const double* line) {
    _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
  }
};

#include "quantize/linear_algebra/tile_kernels.inc"

}  // namespace

const TileKernels& tile_kernels_avx512() { return kTileKernels; }

}  // namespace leq
