// The second moments H = X^T X of a linear's inputs, prepared for methods that weight errors by H:
// tr[(W - Q) H (W - Q)^T] is the squared error of the outputs for the calibration tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/linear_algebra/sliced_matrix.h"
#include "quantize/methods/method.h"

namespace leq {

// Shrinkage: the share of its diagonal that is added to X^T X, 4 K / T but at most 1. In few
// tokens some correlations are chance, and compensating for these increases the loss on other
// texts.
double shrinkage_of(std::int64_t columns, std::int64_t tokens);

// H in f32, for products that need no factor. Scaled by a power of two so that the mean of the
// diagonal is near 1. Inputs that were always 0 have 1 on the diagonal.
struct Hessian {
  std::int64_t columns = 0;    // K
  SlicedMatrix<float> values;  // [K][K]
};

// Adds `damping` + options.shrinkage times the diagonal to H. Throws Error if the statistics have
// no H of the weight's width, or one with values that are not finite.
Hessian prepare_hessian(const MethodInput& input, double damping, ThreadPool& pool);

// Sets the diagonal to 0 for inputs that were always 0, because they add nothing to a loss.
void forget_dead_inputs(const InputStatistics& statistics, Hessian& hessian);
// H for computing losses: with shrinkage, without damping, and with dead inputs set to 0.
Hessian loss_hessian(const MethodInput& input, ThreadPool& pool);

// Damped H = A D A^T with A upper triangular and ones on its diagonal; columns are in rounding
// order. The loss of a row is sum_i D_i e_i^2, e_i = d_i + sum_{j<i} d_j A_ji, d_j = w_j - q_j, so
// that term i depends on columns 0 ... i only. Without an inverse, this is GPTQ's update:
// e = (w - q) / U_ii, W -= e U, H^-1 = U^T U with U = D^-1/2 A^-1.
template <class Real>
struct Feedback {
  std::vector<std::int32_t> order;  // [K] order[i] is the i-th column to round
  SlicedMatrix<Real> factor;        // [K][K] A above the diagonal; the rest is undefined
  std::vector<double> pivots;       // [K] D
  double damping = 0;               // share added to the diagonal, without the shrinkage
};

// Damping grows tenfold, up to 1, until H is positive definite; nullopt if this is not enough.
// Ranks divide the work. If options.act_order is set, columns are ordered by descending diagonal of
// H (stable). Throws Error as prepare_hessian does.
template <class Real>
std::optional<Feedback<Real>> factor_hessian(const MethodInput& input, ThreadPool& pool);

}  // namespace leq
