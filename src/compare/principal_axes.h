// The two directions of largest variance (principal component analysis), by power iteration.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace leq {

struct PrincipalAxes {
  std::int64_t width = 0;
  std::vector<double> mean;                       // [W]
  std::array<std::vector<double>, 2> directions;  // [W] each, of length 1, orthogonal
  std::array<double, 2> explained = {};           // shares of the variance
  double spread = 0;                              // root mean squared distance from the mean
};

// The axes of rows [T][W], T >= 2. The sign of a direction is that of its largest entry.
PrincipalAxes principal_axes(std::span<const float> rows, std::int64_t width);
// The coordinates of each row on the two axes.
std::vector<std::pair<double, double>> project(const PrincipalAxes& axes,
                                               std::span<const float> rows);
// The mean distance between corresponding rows, as a share of the spread.
double mean_shift(const PrincipalAxes& axes, std::span<const float> exact,
                  std::span<const float> other);

}  // namespace leq
