// The inner loops of the dense linear algebra for each instruction set. A tile is 8 rows of one
// panel, and a panel is 192 bytes wide, so that a tile fills 24 accumulators of 512 bits. With any
// instruction set, every element is computed by the same fused multiply-adds in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/cpu_features.h"

namespace leq {

inline constexpr std::int64_t kTileRows = 8;
inline constexpr std::int64_t kTileDepth = 128;  // most depth of a product: then a panel fits in L1
inline constexpr std::size_t kPanelBytes = 192;
template <class Real>
inline constexpr std::int64_t kPanelLanes = kPanelBytes / sizeof(Real);  // f32: 48, f64: 24

// c [8][lanes] += sign * (a^T b) for a [depth][8] and b [depth][lanes]. Each sum is one chain of
// fused multiply-adds from 0 over the depth, then one with the sign (1 or -1).
template <class Real>
struct TileProduct {
  const Real* a = nullptr;
  std::int64_t a_stride = 0;  // stride between depths; b's is a panel's lanes
  const Real* b = nullptr;    // aligned to 64 bytes
  std::int64_t depth = 0;
  Real* c = nullptr;
  std::int64_t c_stride = 0;
  Real sign = 1;
  const Real* next_a = nullptr;  // the next tile's a, to be prefetched
};

// Rounds one column of weights in all lanes of a panel; each lane is one weight row. Every pointer
// except `factor` points to [lanes].
struct RoundColumn {
  // The target is targets + sum over q < before of differences[q - before] * factor[q * 8].
  const float* targets = nullptr;
  const float* factor = nullptr;
  std::int64_t before = 0;
  const float* weights = nullptr;
  const float* scales = nullptr;
  const float* divisors = nullptr;
  const float* zeros = nullptr;
  float low = 0, high = 0;       // limits of codes
  const float* table = nullptr;  // codes with a table: nearest numbers (CodeLimits)
  double pivot = 0;              // factor on the losses
  float* differences = nullptr;  // weight - value; preceded by those of earlier columns
  std::int16_t* codes = nullptr;
  double* losses = nullptr;  // losses += pivot * (target - value)^2
};

// Moves one column of codes in all lanes to the minimum of the loss as a function of that column.
struct MoveColumn {
  // The gradient is gradients + sum over q < before of changes[q - before] * factor[q * 8].
  const float* gradients = nullptr;
  const float* factor = nullptr;
  std::int64_t before = 0;
  const float* scales = nullptr;
  const float* divisors = nullptr;
  float curvature = 0;      // diagonal element of H
  float least_move = 0;     // no move if |gradient / (curvature * divisor)| is smaller
  float low = 0, high = 0;  // limits of codes
  const float* table = nullptr;
  std::int16_t* codes = nullptr;
  float* errors = nullptr;   // the change is added
  float* changes = nullptr;  // change of errors, -scale * move; preceded by earlier columns'
};

struct TileKernels {
  void (*add_product_f32)(const TileProduct<float>&) noexcept;
  void (*add_product_f64)(const TileProduct<double>&) noexcept;
  // Solves a triangular system in place, from the last row up; `triangle` [8][8] is -L, with 1/L_kk
  // on its diagonal: x_k := (x_k + sum over m > k of triangle[m][k] x_m) * triangle[k][k].
  void (*solve)(const double* triangle, double* x) noexcept;
  // Rounds to codes as nearest_code does.
  void (*round)(const RoundColumn&) noexcept;
  // Returns the number of codes that moved.
  std::int64_t (*move)(const MoveColumn&) noexcept;
  // sums [lanes] += sum over k of a[k] b[k], both [count][lanes]; 16 products at a time in f32.
  void (*add_dots)(const float* a, const float* b, std::int64_t count, double* sums) noexcept;
};

// The kernels of one level, for tests; without argument, of the best supported level or LEQ_ISA.
const TileKernels& tile_kernels(Isa isa);
const TileKernels& tile_kernels();

// The product kernel for f32 or f64 of the selected level.
template <class Real>
auto product_kernel() {
  if constexpr (std::is_same_v<Real, float>) {
    return tile_kernels().add_product_f32;
  } else {
    return tile_kernels().add_product_f64;
  }
}

const TileKernels& tile_kernels_portable();
const TileKernels& tile_kernels_avx2();
const TileKernels& tile_kernels_avx512();
const TileKernels& tile_kernels_neon();

}  // namespace leq
