// Principal axes of rows whose axes are known by construction.
#include "compare/principal_axes.h"

#include <gtest/gtest.h>

#include <cmath>

namespace leq {
namespace {

TEST(PrincipalAxes, FindsTheDirectionsOfASkewedCloud) {
  // Points (5, -2, 1) + 3 cos t (0.6, 0.8, 0) + sin t (0, 0, 1).
  std::vector<float> rows;
  constexpr int kPoints = 360;
  for (int i = 0; i < kPoints; ++i) {
    const double t = 2 * M_PI * i / kPoints;
    rows.push_back(static_cast<float>(5 + 0.6 * 3 * std::cos(t)));
    rows.push_back(static_cast<float>(-2 + 0.8 * 3 * std::cos(t)));
    rows.push_back(static_cast<float>(1 + std::sin(t)));
  }
  const PrincipalAxes axes = principal_axes(rows, 3);
  EXPECT_NEAR(axes.directions[0][0], 0.6, 1e-5);
  EXPECT_NEAR(axes.directions[0][1], 0.8, 1e-5);
  EXPECT_NEAR(axes.directions[1][2], 1, 1e-5);
  EXPECT_NEAR(axes.explained[0], 0.9, 1e-5);
  EXPECT_NEAR(axes.explained[1], 0.1, 1e-5);
  EXPECT_NEAR(axes.spread, std::sqrt(5.0), 1e-5);
  const auto points = project(axes, rows);
  EXPECT_NEAR(points[0].first, 3, 1e-5);
  EXPECT_NEAR(points[kPoints / 4].second, 1, 1e-5);
  std::vector<float> moved = rows;
  for (std::size_t i = 0; i < moved.size(); i += 3) moved[i] += 1;
  EXPECT_NEAR(mean_shift(axes, rows, moved), 1 / std::sqrt(5.0), 1e-5);
}

}  // namespace
}  // namespace leq
