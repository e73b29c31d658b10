// The second moments H = X^T X of a linear's inputs, prepared for methods that weight errors by H:
// tr[(W - Q) H (W - Q)^T] is the squared error of the outputs for the calibration tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/calibration/calibration.h"
#include "quantize/linear_algebra/matrix.h"
#include "quantize/methods/method.h"
#include "ranks/communicator.h"
#include "tensor/pack.h"
#include "tensor/quant_scheme.h"

namespace leq {

// Shrinkage: the share of its diagonal that is added to X^T X, 4 K / T but at most 1. In few
// tokens some correlations are chance, and compensating for these increases the loss on other
// texts.
double shrinkage_of(std::int64_t columns, std::int64_t tokens);

// H in f32, for products that need no factor. Scaled by a power of two so that the mean of the
// diagonal is near 1. Inputs that were always 0 have 1 on the diagonal.
struct Hessian {
  std::int64_t columns = 0;  // K
  SlicedMatrix values;       // [K][K]
};

// Adds `damping` + options.shrinkage times the diagonal to H. Throws Error if the statistics have
// no H of the weight's width, or one with values that are not finite.
Hessian prepare_hessian(const MethodInput& input, double damping, ThreadPool& pool);

// Sets the diagonal to 0 for inputs that were always 0, because they add nothing to a loss.
void clear_dead_inputs(const InputStatistics& statistics, Hessian& hessian);

// Damped H = A D A^T with A upper triangular and ones on its diagonal; columns are in rounding
// order. The loss of a row is sum_i D_i e_i^2, e_i = d_i + sum_{j<i} d_j A_ji, d_j = w_j - q_j, so
// that term i depends on columns 0 ... i only. Without an inverse, this is GPTQ's update:
// e = (w - q) / U_ii, W -= e U, H^-1 = U^T U with U = D^-1/2 A^-1.
struct Feedback {
  std::vector<std::int32_t> order;  // [K] order[i] is the i-th column to round
  SlicedMatrix factor;              // [K][K] A above the diagonal; the rest is undefined
  std::vector<double> pivots;       // [K] D
  double damping = 0;               // share added to the diagonal, without the shrinkage
};

// Damping grows tenfold, up to 1, until H is positive definite; nullopt if this is not enough.
// Ranks divide the work. If options.act_order is set, columns are ordered by descending diagonal of
// H (stable). Throws Error as prepare_hessian does.
std::optional<Feedback> factor_hessian(const MethodInput& input, ThreadPool& pool);

// Error of chosen codes compared with the original weight: in the weights themselves, and in the
// outputs for the calibration tokens.

// The values [N][K] of codes in f32, as the file's reader computes them. int: s * c;
// uint: s * (u - z); otherwise by the scheme's format (tensor/code_formats.h). Throws Error if the
// sizes do not fit rows, columns and scheme.
std::vector<float> dequantize(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                              const QuantScheme& scheme);

// Two weights [N][K] to compare: `found` is the quantized version of `wanted`.
struct WeightPair {
  std::span<const float> wanted, found;
  std::int64_t rows = 0;     // N
  std::int64_t columns = 0;  // K
  ThreadPool* pool = nullptr;
  Communicator* ranks = &one_rank();  // ranks, each of which has some of the rows, in order
};

// All errors are relative: 0 = no difference, 1 = the error of an all-zero weight; 0 if both are 0.
// weight_error: ||W - Wq||^2 / ||W||^2.
double weight_error(const WeightPair& pair);
// sum h_k (W - Wq)_nk^2 / sum h_k W_nk^2, where h_k is the mean square of input channel k.
double diagonal_error(const WeightPair& pair, const InputStatistics& statistics);
// tr[(W - Wq) H (W - Wq)^T] / tr[W H W^T]: relative squared error of the outputs for the
// calibration tokens, with products in f32. Throws Error without H.
double proxy_error(const WeightPair& pair, const InputStatistics& statistics);
// Computes proxy_error from the errors that a method has computed for this rank's rows.
double proxy_error(const OutputErrors& outputs, Communicator& ranks);

// (W - Wq) mean(x) of each row [N] for the calibration tokens: the bias correction that restores
// the mean of the outputs. Throws Error if the statistics have other columns or no tokens.
std::vector<float> mean_difference(const WeightPair& pair, const InputStatistics& statistics);

// Squared error in the outputs caused by weight errors d, summed over tokens: d H d^T, where H is
// statistics.hessian or, if that is unknown, its diagonal. Products in f32. All results have the
// same unknown factor, which does not depend on d.
class OutputWeights {
 public:
  // The statistics must outlive the object.
  OutputWeights(const InputStatistics& statistics, ThreadPool* pool);

  // [N] error of each row of `rows` [N][K].
  std::vector<double> errors(std::span<const float> rows) const;

  const InputStatistics& statistics() const { return statistics_; }
  ThreadPool* pool() const { return pool_; }

 private:
  const InputStatistics& statistics_;
  ThreadPool* pool_;
  std::optional<Hessian> hessian_;
};

// Scales, divisors and zero points of a panel's rows, by lane. Each array is [G][lanes]. Unused
// lanes have scale 1 and zero point 0.
struct LaneRanges {
  LaneRanges(const Ranges& ranges, std::int64_t first, std::int64_t count, std::int64_t lanes)
      : lanes_(lanes), group_(ranges.group) {
    const auto size = static_cast<std::size_t>(ranges.per_row * lanes);
    scales.assign(size, 1.0f);
    divisors.assign(size, 1.0f);
    zeros.assign(size, 0.0f);
    for (std::int64_t row = 0; row < std::min(count, lanes); ++row) {
      for (std::int64_t g = 0; g < ranges.per_row; ++g) {
        const auto from = static_cast<std::size_t>((first + row) * ranges.per_row + g);
        const auto to = static_cast<std::size_t>(g * lanes + row);
        scales[to] = ranges.scales[from];
        divisors[to] = ranges.divisors[from];
        zeros[to] = static_cast<float>(ranges.zero(from));
      }
    }
  }

  // Index of lane 0 in the group that contains the column.
  std::int64_t index(std::int64_t column) const { return column / group_ * lanes_; }

  std::vector<float> scales, divisors, zeros;

 private:
  std::int64_t lanes_, group_;
};

// Errors W - Q of the chosen codes and the loss in the outputs. Rows are the lanes of panels.

// [panels][K] w - scale * (code - zero) of `count` rows from `first` on; unused lanes are 0.
LanePanels<float> code_errors(const MethodInput& input, const Ranges& ranges,
                              std::span<const std::int16_t> codes, std::int64_t first,
                              std::int64_t count);

// Loss d H d^T of every row d of `rows` [N][K]: [N]. Products in f32, sums over a row in double.
std::vector<double> row_energies(std::span<const float> rows, const Hessian& hessian,
                                 ThreadPool& pool);
// Losses d H d^T of the rows d of W - Q: [N].
std::vector<double> row_losses(const MethodInput& input, const Ranges& ranges,
                               std::span<const std::int16_t> codes, const Hessian& hessian,
                               ThreadPool& pool);

// Coordinate descent over integer codes. In a few passes over the columns, each code moves to the
// value that minimizes the squared error of the outputs while all other codes are fixed.

// Moves codes [N][K] in fixed ranges, in at most `passes` passes; returns the number of moves. With
// g = H (w - q), the best move of code j is rne(g_j / (H_jj s)), clipped to the limits of codes. No
// move increases a row's loss (w - q) H (w - q)^T. Independent of the number of threads.
std::int64_t descend(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                     int passes, std::span<std::int16_t> codes, ThreadPool& pool);

// Refits scales for fixed codes: finds the best scales of all groups of a row together.

// Solves A s = r for each row, with A_gh = c_g H c_h^T and r_g = c_g H w^T, where c_g are the row's
// codes (minus the zero point) in group g. Stores the rounded scales in `ranges` if they reduce the
// row's loss; returns how many rows were changed. A scale keeps its sign and its group's codes.
// Scaling::tensor is left unchanged.
std::int64_t refit_scales(const MethodInput& input, std::span<const std::int16_t> codes,
                          const Hessian& hessian, Ranges& ranges, ThreadPool& pool);

// A scale as the file stores it: group scales are f16 times scale_mul, others unchanged. Returns 0
// if it underflows or is too large.
float stored_scale(float scale, float scale_mul, const QuantScheme& scheme);

}  // namespace leq
