#include "quantize/methods/hessian.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "quantize/linear_algebra/dense.h"

namespace leq {
namespace {

constexpr double kFirstRaise = 0.01;  // first damping above 0
constexpr double kMostDamping = 1.0;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The diagonal of H, with 1 for inputs that were always 0.
std::vector<double> live_diagonal(const MethodInput& input) {
  const std::int64_t n = input.columns;
  const InputStatistics* statistics = input.statistics;
  require(statistics != nullptr && std::ssize(statistics->hessian) == n * n, input.name,
          ": expected X^T X of ", n, " inputs, the statistics hold ",
          statistics == nullptr ? 0 : statistics->hessian.size(),
          " values; calibrate with the Hessian of this linear");
  std::vector<double> diagonal(at(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = statistics->hessian[at(i * n + i)];
    require(std::isfinite(value) && value >= 0, input.name, ": X^T X has ", value, " at input ", i,
            "; expected a finite number that is not negative, calibrate again");
    diagonal[at(i)] = value == 0 ? 1.0 : value;
  }
  return diagonal;
}

std::vector<std::int32_t> column_order(const std::vector<double>& diagonal, bool by_size) {
  std::vector<std::int32_t> order(diagonal.size());
  std::iota(order.begin(), order.end(), 0);
  if (by_size) {
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t left, std::int32_t right) {
      return diagonal[at(left)] > diagonal[at(right)];
    });
  }
  return order;
}

// The lower triangle of H in the given column order, with its diagonal times 1 + damping.
void gather_lower(const std::vector<double>& hessian, const std::vector<double>& diagonal,
                  const std::vector<std::int32_t>& order, double damping, LowerMatrix& out,
                  ThreadPool& pool) {
  const std::int64_t n = std::ssize(order);
  pool.run(n, [&](std::int64_t i, int) {
    const double* from = hessian.data() + order[at(i)] * n;
    for (std::int64_t panel = 0; panel <= i / LowerMatrix::kLanes; ++panel) {
      double* const to = out.row(panel, i);
      const std::int64_t first = panel * LowerMatrix::kLanes;
      const std::int64_t last = std::min(i, first + LowerMatrix::kLanes);
      for (std::int64_t j = first; j < last; ++j) to[j - first] = from[order[at(j)]];
    }
    out.at(i, i) = diagonal[at(order[at(i)])] * (1.0 + damping);
  });
}

// Splits H = L^T L into A D A^T: A_ki = L_ik / L_ii.
template <class Real>
void split_factor(const LowerMatrix& l, Feedback<Real>& feedback, ThreadPool& pool) {
  const std::int64_t n = std::ssize(feedback.order);
  std::vector<double> inverse(at(n));
  feedback.pivots.resize(at(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const double pivot = l.at(i, i);
    feedback.pivots[at(i)] = pivot * pivot;
    inverse[at(i)] = 1.0 / pivot;
  }
  feedback.factor = slice_columns<Real>(
      n, pool, [](std::int64_t i) { return i; },
      [&](std::int64_t k, std::int64_t i) {
        return static_cast<Real>(l.at(i, k) * inverse[at(i)]);
      });
}

}  // namespace

double shrinkage_of(std::int64_t columns, std::int64_t tokens) {
  constexpr double kShare = 4;  // SmolLM2, 4,096 tokens: 0.3 halves the loss of 0.01; 1 is better
  if (tokens <= 0) return 0;
  return std::min(1.0, kShare * static_cast<double>(columns) / static_cast<double>(tokens));
}

Hessian prepare_hessian(const MethodInput& input, double damping, ThreadPool& pool) {
  const std::vector<double> diagonal = live_diagonal(input);
  const std::int64_t n = input.columns;
  const double added = damping + input.options.shrinkage;
  const double mean =
      std::accumulate(diagonal.begin(), diagonal.end(), 0.0) / static_cast<double>(n);
  const double factor = std::ldexp(1.0, -std::ilogb(mean));
  Hessian result;
  result.columns = n;
  const double* h = input.statistics->hessian.data();
  result.values = slice_columns<float>(
      n, pool, [n](std::int64_t) { return n; },
      [&](std::int64_t k, std::int64_t i) {
        const double value = k == i ? diagonal[at(i)] * (1.0 + added) : h[i * n + k];
        return static_cast<float>(value * factor);
      });
  return result;
}

void forget_dead_inputs(const InputStatistics& statistics, Hessian& hessian) {
  for (std::int64_t k = 0; k < hessian.columns; ++k) {
    if (statistics.hessian[at(k * (hessian.columns + 1))] == 0) hessian.values.at(k, k) = 0;
  }
}

Hessian loss_hessian(const MethodInput& input, ThreadPool& pool) {
  Hessian hessian = prepare_hessian(input, 0, pool);
  forget_dead_inputs(*input.statistics, hessian);
  return hessian;
}

template <class Real>
std::optional<Feedback<Real>> factor_hessian(const MethodInput& input, ThreadPool& pool) {
  const std::vector<double> diagonal = live_diagonal(input);
  Feedback<Real> feedback;
  feedback.order = column_order(diagonal, input.options.act_order);
  LowerMatrix l(input.columns);
  for (double damping = input.options.damping;;) {
    gather_lower(input.statistics->hessian, diagonal, feedback.order,
                 damping + input.options.shrinkage, l, pool);
    if (factor_lower(l, pool, *input.ranks)) {
      feedback.damping = damping;
      split_factor(l, feedback, pool);
      return feedback;
    }
    if (damping >= kMostDamping) return std::nullopt;
    damping = std::min(kMostDamping, damping > 0 ? damping * 10 : kFirstRaise);
  }
}

template std::optional<Feedback<float>> factor_hessian(const MethodInput&, ThreadPool&);
template std::optional<Feedback<double>> factor_hessian(const MethodInput&, ThreadPool&);

}  // namespace leq
