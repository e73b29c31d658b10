// The learned policy: a bandit that corrects predicted losses by measurements of whole assignments.
//
// log KL(b) = log P(b) + theta . phi(b), where P is the additive prediction from uniform points and
// proxies. phi has an entry for each (unit l, bits below 8): the share D_l(b_l) / P(b), so that
// theta is to first order the log of the factor that corrects D_l(b_l); and six features of the
// units, summed with these shares. theta comes from ridge regression with prior mean 0. Each round
// measures the best assignment by losses D exp(theta - beta sigma), the lower confidence bound of
// each loss.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/random.h"
#include "quantize/search/bit_search.cpp"

namespace leq {
namespace {

constexpr std::size_t kShared = 6;
constexpr double kRidge = 1.0;
constexpr double kBeta = 1.0;
constexpr double kWarmUpNoise = 0.7;  // standard deviation of noise on log losses
constexpr int kWarmUp = 32;
constexpr int kStaleRounds = 5;
constexpr double kSmallGain = 0.005;  // relative to J
constexpr int kTries = 16;            // attempts to find an unmeasured assignment

// Keeps (Phi^T Phi + mu I)^-1 and Phi^T y, updated by rank 1 (Sherman and Morrison).
class Ridge {
 public:
  explicit Ridge(std::size_t size) : size_(size), inverse_(size * size, 0.0), sum_(size, 0.0) {
    for (std::size_t i = 0; i < size; ++i) inverse_[i * size + i] = 1 / kRidge;
  }

  void add(const std::vector<double>& phi, double y) {
    const std::vector<double> u = times(phi);
    double scale = 1;
    for (std::size_t i = 0; i < size_; ++i) scale += phi[i] * u[i];
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < size_; ++j) inverse_[i * size_ + j] -= u[i] * u[j] / scale;
      sum_[i] += phi[i] * y;
    }
  }
  std::vector<double> theta() const { return times(sum_); }
  // Standard deviation of the prediction phi . theta, for noise of variance 1.
  double sigma(const std::vector<double>& phi) const {
    const std::vector<double> u = times(phi);
    double variance = 0;
    for (std::size_t i = 0; i < size_; ++i) variance += phi[i] * u[i];
    return std::sqrt(std::max(variance, 0.0));
  }

 private:
  std::vector<double> times(const std::vector<double>& vector) const {
    std::vector<double> out(size_, 0.0);
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < size_; ++j) out[i] += inverse_[i * size_ + j] * vector[j];
    }
    return out;
  }

  std::size_t size_;
  std::vector<double> inverse_;  // [d][d]
  std::vector<double> sum_;      // [d]
};

// Six numbers for each unit and choice. Each of the six is scaled over all units to mean 0 and
// variance 1 (or to 0 if it is constant).
std::vector<std::array<double, kShared>> shared_features(const SearchProblem& problem) {
  std::int64_t last = 1;
  for (const SearchUnit& unit : problem.units) last = std::max(last, unit.layer);
  std::vector<std::array<double, kShared>> rows;
  for (const SearchUnit& unit : problem.units) {
    const double depth = static_cast<double>(unit.layer) / static_cast<double>(last);
    for (std::size_t c = 0; c < kEightBits; ++c) {
      rows.push_back({std::log(unit.proxy[c] + 1e-30), std::log(unit.diagonal_proxy[c] + 1e-30),
                      unit.kurtosis, unit.outlier_ratio, unit.entropy, depth * (1 - depth)});
    }
  }
  const auto count = static_cast<double>(rows.size());
  for (std::size_t k = 0; k < kShared; ++k) {
    double mean = 0, variance = 0;
    for (const auto& row : rows) mean += row[k] / count;
    for (const auto& row : rows) variance += (row[k] - mean) * (row[k] - mean) / count;
    const double scale = variance > 1e-20 ? 1 / std::sqrt(variance) : 0.0;
    for (auto& row : rows) row[k] = (row[k] - mean) * scale;
  }
  return rows;
}

class Policy {
 public:
  explicit Policy(SearchMeter& meter)
      : meter_(meter),
        prior_(losses_from_uniform(meter)),
        shared_(shared_features(meter.problem())),
        ridge_(kEightBits * prior_.size() + kShared),
        random_(meter.options().seed) {
    Assignment eight(prior_.size(), kEightBits);
    floor_ = std::max(meter.measure(eight)->kl, 1e-12);
  }

  void learn(const SearchPoint& point) {
    const double predicted = std::max(predicted_kl(prior_, floor_, point.assignment), 1e-12);
    ridge_.add(features(point.assignment, predicted),
               std::log(std::max(point.kl, 1e-12) / predicted));
  }

  // Estimated losses, lowered by beta standard deviations, with random noise (0 = none).
  LossTable losses(double beta, double noise) {
    const std::vector<double> theta = ridge_.theta();
    LossTable result = prior_;
    for (std::size_t l = 0; l < result.size(); ++l) {
      for (std::size_t c = 0; c < kEightBits; ++c) {
        const std::vector<double> direction = feature(l, c);
        double log_factor = 0;
        for (std::size_t i = 0; i < theta.size(); ++i) log_factor += theta[i] * direction[i];
        if (beta > 0) log_factor -= beta * noise_scale_ * ridge_.sigma(direction);
        if (noise > 0) log_factor += noise * static_cast<double>(random_.normal());
        result[l][c] *= std::exp(std::clamp(log_factor, -4.0, 4.0));
      }
    }
    return result;
  }

  Assignment best(const LossTable& table) const {
    return solve_knapsack(meter_.problem().units, table, meter_.price(), meter_.limit());
  }
  double predicted_objective(const LossTable& table, const Assignment& assignment) const {
    return meter_.objective(predicted_kl(table, floor_, assignment),
                            bytes_of(meter_.problem(), assignment));
  }

  // An assignment that is not measured yet; empty if even noise leads to none.
  Assignment fresh(double beta, double noise) {
    for (int attempt = 0; attempt < kTries; ++attempt) {
      Assignment candidate = best(losses(beta, attempt == 0 ? noise : noise + 0.1 * attempt));
      if (!candidate.empty() && !meter_.measured(candidate)) return candidate;
    }
    return {};
  }

 private:
  std::vector<double> feature(std::size_t unit, std::size_t choice) const {
    std::vector<double> phi(kEightBits * prior_.size() + kShared, 0.0);
    const std::size_t row = unit * kEightBits + choice;
    phi[row] = 1;
    for (std::size_t k = 0; k < kShared; ++k) phi[kEightBits * prior_.size() + k] = shared_[row][k];
    return phi;
  }

  std::vector<double> features(const Assignment& assignment, double predicted) const {
    std::vector<double> phi(kEightBits * prior_.size() + kShared, 0.0);
    for (std::size_t l = 0; l < assignment.size(); ++l) {
      if (assignment[l] == kEightBits) continue;
      const double share = prior_[l][assignment[l]] / predicted;
      const std::size_t row = l * kEightBits + assignment[l];
      phi[row] = share;
      for (std::size_t k = 0; k < kShared; ++k) {
        phi[kEightBits * prior_.size() + k] += share * shared_[row][k];
      }
    }
    return phi;
  }

  SearchMeter& meter_;
  LossTable prior_;
  std::vector<std::array<double, kShared>> shared_;  // [units * 3]
  Ridge ridge_;
  Random random_;
  double floor_ = 0;          // KL of all units at 8 bits
  double noise_scale_ = 0.3;  // std. deviation of a log loss before measurements
};

}  // namespace

LossTable search_learned(SearchMeter& meter) {
  Policy policy(meter);
  for (const SearchPoint& point : std::vector(meter.trace())) policy.learn(point);
  const int warm_up = std::min(kWarmUp, (meter.options().evaluations - meter.used()) / 2);
  for (int i = 0; i < warm_up; ++i) {
    const Assignment candidate = policy.fresh(0, i == 0 ? 0.0 : kWarmUpNoise);
    const auto point = candidate.empty() ? std::nullopt : meter.measure(candidate);
    if (!point) break;
    policy.learn(*point);
  }
  int stale = 0;
  while (!meter.exhausted()) {
    const double before = meter.best().objective;
    const LossTable optimistic = policy.losses(kBeta, 0);
    const Assignment favourite = policy.best(optimistic);
    const double promised = policy.predicted_objective(optimistic, favourite);
    const double small = kSmallGain * std::abs(before);
    if (stale >= kStaleRounds && before - promised < small) break;
    const Assignment candidate = policy.fresh(kBeta, 0);
    const auto point = candidate.empty() ? std::nullopt : meter.measure(candidate);
    if (!point) break;
    policy.learn(*point);
    stale = before - meter.best().objective > small ? 0 : stale + 1;
  }
  return policy.losses(0, 0);
}

}  // namespace leq
