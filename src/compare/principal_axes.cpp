#include "compare/principal_axes.h"

#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

constexpr int kIterations = 300;

double length_of_vector(std::span<const double> v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

double dot_product(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Subtracts the mean from the rows, in double.
std::vector<double> centred(std::span<const float> rows, std::span<const double> mean) {
  std::vector<double> result(rows.begin(), rows.end());
  for (std::size_t i = 0; i < result.size(); ++i) result[i] -= mean[i % mean.size()];
  return result;
}

// Computes X^T X v without forming X^T X.
std::vector<double> times_covariance(std::span<const double> rows, std::span<const double> v) {
  std::vector<double> result(v.size());
  for (std::size_t t = 0; t < rows.size(); t += v.size()) {
    const auto row = rows.subspan(t, v.size());
    const double along = dot_product(row, v);
    for (std::size_t i = 0; i < v.size(); ++i) result[i] += along * row[i];
  }
  return result;
}

void scale_to_one(std::vector<double>& v) {
  const double length = length_of_vector(v);
  if (length == 0) return;
  double largest = 0;
  for (const double x : v) largest = std::abs(x) > std::abs(largest) ? x : largest;
  for (double& x : v) x /= largest < 0 ? -length : length;
}

// The direction of largest variance that is orthogonal to `other` (if empty, without constraint).
std::vector<double> direction(std::span<const double> rows, std::size_t width,
                              std::span<const double> other) {
  Random random(other.empty() ? 1 : 2);
  std::vector<double> v(width);
  for (double& x : v) x = random.normal();
  for (int i = 0; i < kIterations; ++i) {
    v = times_covariance(rows, v);
    if (!other.empty()) {
      const double along = dot_product(v, other);
      for (std::size_t k = 0; k < width; ++k) v[k] -= along * other[k];
    }
    scale_to_one(v);
  }
  return v;
}

}  // namespace

PrincipalAxes principal_axes(std::span<const float> rows, std::int64_t width) {
  const auto w = static_cast<std::size_t>(width);
  ensure(width > 0 && rows.size() % w == 0 && rows.size() / w >= 2, "principal axes: ", rows.size(),
         " numbers in rows of ", width);
  PrincipalAxes axes;
  axes.width = width;
  axes.mean.resize(w);
  const auto tokens = static_cast<double>(rows.size() / w);
  for (std::size_t i = 0; i < rows.size(); ++i) axes.mean[i % w] += rows[i] / tokens;
  const std::vector<double> x = centred(rows, axes.mean);
  const double total = dot_product(x, x);
  axes.spread = std::sqrt(total / tokens);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    std::vector<double>& v = axes.directions[axis];
    v = direction(x, w, axis == 0 ? std::span<const double>() : axes.directions[0]);
    const double variance = dot_product(v, times_covariance(x, v));
    axes.explained[axis] = total > 0 ? variance / total : 0;
  }
  return axes;
}

std::vector<std::pair<double, double>> project(const PrincipalAxes& axes,
                                               std::span<const float> rows) {
  const std::vector<double> x = centred(rows, axes.mean);
  const auto w = static_cast<std::size_t>(axes.width);
  std::vector<std::pair<double, double>> points;
  for (std::size_t t = 0; t < x.size(); t += w) {
    const auto row = std::span(x).subspan(t, w);
    points.emplace_back(dot_product(row, axes.directions[0]), dot_product(row, axes.directions[1]));
  }
  return points;
}

double mean_shift(const PrincipalAxes& axes, std::span<const float> exact,
                  std::span<const float> other) {
  const auto w = static_cast<std::size_t>(axes.width);
  double sum = 0;
  for (std::size_t t = 0; t < exact.size(); t += w) {
    double squares = 0;
    for (std::size_t i = t; i < t + w; ++i) {
      const double difference = static_cast<double>(exact[i]) - static_cast<double>(other[i]);
      squares += difference * difference;
    }
    sum += std::sqrt(squares);
  }
  return axes.spread > 0 ? sum / static_cast<double>(exact.size() / w) / axes.spread : 0;
}

}  // namespace leq
