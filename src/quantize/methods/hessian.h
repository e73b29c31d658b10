// The second moments H = X^T X of a linear's inputs, prepared for methods that weight errors by
// them: tr[(W - Q) H (W - Q)^T] is the squared error of the outputs over the calibration tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/linear_algebra/sliced_matrix.h"
#include "quantize/methods/method.h"

namespace leq {

// The share of its diagonal that is added to X^T X as shrinkage: 4
// K / T, at most 1. Correlations in few tokens are partly chance,
// and correcting for them increases the loss on other texts.
double shrinkage_of(std::int64_t columns, std::int64_t tokens);

// H in f32, for products that need no factor. Scaled by a power of two to a mean diagonal near 1.
// Inputs that were always 0 have 1 on the diagonal.
struct Hessian {
  std::int64_t columns = 0;    // K
  SlicedMatrix<float> values;  // [K][K]
};

// H with `damping` + options.shrinkage times its diagonal added. Throws Error where the statistics
// hold no H of the weight's width, or one that is not finite.
Hessian prepare_hessian(const MethodInput& input, double damping, ThreadPool& pool);

// Sets the diagonal to 0 for inputs that were always 0: they add nothing to a loss.
void clear_dead_inputs(const InputStatistics& statistics, Hessian& hessian);
// H for computing losses: shrunk but not damped, dead inputs excluded.
Hessian loss_hessian(const MethodInput& input, ThreadPool& pool);

// H (damped) = A D A^T, columns in the order in which a method rounds them; A upper triangular with
// ones on the diagonal. With d_j = w_j - q_j the loss of a row is the sum over i of D_i e_i^2, e_i
// = d_i + sum over j < i of d_j A_ji: column i depends on the errors of those before it. This is
// GPTQ's update (e = (w - q) / U_ii, W -= e U, H^-1 = U^T U: U = D^-1/2 A^-1) without an inverse.
template <class Real>
struct Feedback {
  std::vector<std::int32_t> order;  // [K] order[i] = the i-th column to round
  SlicedMatrix<Real> factor;        // [K][K] A above the diagonal, else undefined
  std::vector<double> pivots;       // [K] D
  double damping = 0;               // share added to the diagonal, apart from the shrinkage
};

// While H is not positive definite, damping grows tenfold, up to 1; nullopt where that is not
// enough. Ranks divide the work. Columns by descending diagonal of H (stable) where
// options.act_order is set. Throws Error as prepare_hessian does.
template <class Real>
std::optional<Feedback<Real>> factor_hessian(const MethodInput& input, ThreadPool& pool);

}  // namespace leq
