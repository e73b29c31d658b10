// The tile kernels in NEON: 8 x 3 vectors, 24 accumulators of 32 registers.
#include <arm_neon.h>

#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

struct F32 {
  using Real = float;
  using Vector = float32x4_t;
  static constexpr std::int64_t kLanes = 4;
  static constexpr int kRows = 8, kVectors = 3;
  static Vector zero() { return vdupq_n_f32(0.0f); }
  static Vector load(const float* from) { return vld1q_f32(from); }
  static Vector broadcast(float value) { return vdupq_n_f32(value); }
  static void store(float* to, Vector vector) { vst1q_f32(to, vector); }
  static Vector add(Vector left, Vector right, Vector sum) { return vfmaq_f32(sum, left, right); }
  static void prefetch(const float* line) { __builtin_prefetch(line); }
};

struct F64 {
  using Real = double;
  using Vector = float64x2_t;
  static constexpr std::int64_t kLanes = 2;
  static constexpr int kRows = 8, kVectors = 3;
  static Vector zero() { return vdupq_n_f64(0.0); }
  static Vector load(const double* from) { return vld1q_f64(from); }
  static Vector broadcast(double value) { return vdupq_n_f64(value); }
  static void store(double* to, Vector vector) { vst1q_f64(to, vector); }
  static Vector add(Vector left, Vector right, Vector sum) { return vfmaq_f64(sum, left, right); }
  static void prefetch(const double* line) { __builtin_prefetch(line); }
};

#include "quantize/linear_algebra/tile_kernels.inc"

}  // namespace

const TileKernels& tile_kernels_neon() { return kTileKernels; }

}  // namespace leq
