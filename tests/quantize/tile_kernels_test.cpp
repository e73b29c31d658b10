#include "quantize/linear_algebra/tile_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "quantize/methods/method.h"
#include "quantize/random_values.h"

namespace leq {
namespace {

template <class Real>
void run_product(const TileKernels& kernels, const TileProduct<Real>& tile) {
  if constexpr (sizeof(Real) == sizeof(float)) {
    kernels.add_product_f32(tile);
  } else {
    kernels.add_product_f64(tile);
  }
}

template <class Real>
class TileKernelsOf : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(TileKernelsOf, Reals);

// Returns the result of one kernel call on random numbers.
template <class Real>
std::vector<Real> product_of(Isa isa, std::int64_t depth, std::int64_t a_stride, Real sign) {
  constexpr std::int64_t kLanes = kPanelLanes<Real>, kStride = kLanes + 5;
  const std::vector<Real> a = random_values<Real>(depth * a_stride, 1);
  const std::vector<Real> b = random_values<Real>(depth * kLanes, 2);
  std::vector<Real> c = random_values<Real>(kTileRows * kStride, 3);
  run_product<Real>(tile_kernels(isa),
                    {a.data(), a_stride, b.data(), depth, c.data(), kStride, sign});
  return c;
}

TYPED_TEST(TileKernelsOf, AProductIsTheDefinitionAndTouchesNothingElse) {
  using Real = TypeParam;
  constexpr std::int64_t kLanes = kPanelLanes<Real>, kStride = kLanes + 5;
  for (const std::int64_t depth : {1, 2, 7, 128}) {
    for (const std::int64_t a_stride : {kTileRows, kLanes}) {
      const std::vector<Real> a = random_values<Real>(depth * a_stride, 1);
      const std::vector<Real> b = random_values<Real>(depth * kLanes, 2);
      const std::vector<Real> before = random_values<Real>(kTileRows * kStride, 3);
      const std::vector<Real> c = product_of<Real>(chosen_isa(), depth, a_stride, Real{-1});
      for (std::int64_t i = 0; i < kTileRows; ++i) {
        for (std::int64_t j = 0; j < kStride; ++j) {
          double want = static_cast<double>(before[at(i * kStride + j)]);
          for (std::int64_t k = 0; k < depth && j < kLanes; ++k)
            want -= static_cast<double>(a[at(k * a_stride + i)]) *
                    static_cast<double>(b[at(k * kLanes + j)]);
          const double bound = sizeof(Real) == sizeof(float) ? 2e-5 : 1e-13;
          ASSERT_NEAR(static_cast<double>(c[at(i * kStride + j)]), want, bound) << i << ", " << j;
        }
      }
    }
  }
}

TYPED_TEST(TileKernelsOf, ProductsHaveTheSameBitsOnEveryLevel) {
  using Real = TypeParam;
  for (const Isa isa : supported_isas()) {
    for (const std::int64_t depth : {1, 5, 128}) {
      for (const Real sign : {Real{1}, Real{-1}}) {
        EXPECT_EQ(product_of<Real>(isa, depth, kPanelLanes<Real>, sign),
                  product_of<Real>(Isa::portable, depth, kPanelLanes<Real>, sign))
            << isa_name(isa) << ", depth " << depth;
      }
    }
  }
}

TEST(TileKernels, SolveLeavesNothingOfTheTriangle) {
  constexpr std::int64_t kLanes = kPanelLanes<double>;
  std::vector<double> l = random_values<double>(kTileRows * kTileRows, 4), triangle = l;
  for (std::int64_t k = 0; k < kTileRows; ++k) {
    l[at(k * kTileRows + k)] = 2 + static_cast<double>(k);
    for (std::int64_t i = 0; i < k; ++i) triangle[at(k * kTileRows + i)] *= -1;
    triangle[at(k * kTileRows + k)] = 1 / l[at(k * kTileRows + k)];
  }
  const std::vector<double> before = random_values<double>(kTileRows * kLanes, 5);
  std::vector<double> portable = before;
  tile_kernels_portable().solve(triangle.data(), portable.data());
  for (const Isa isa : supported_isas()) {
    std::vector<double> x = before;
    tile_kernels(isa).solve(triangle.data(), x.data());
    EXPECT_EQ(x, portable) << isa_name(isa);
    for (std::int64_t k = 0; k < kTileRows; ++k) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        double sum = 0;
        for (std::int64_t m = k; m < kTileRows; ++m)
          sum += l[at(m * kTileRows + k)] * x[at(m * kLanes + lane)];
        EXPECT_NEAR(sum, before[at(k * kLanes + lane)], 1e-10);
      }
    }
  }
}

// Runs column `kBefore` of a step with its buffers on one instruction set level.
struct RoundedColumn {
  static constexpr std::int64_t kLanes = kPanelLanes<float>, kBefore = 5;
  std::vector<float> targets = random_values<float>(kLanes, 6);
  std::vector<float> factor = random_values<float>(kTileRows * kTileRows, 7);
  std::vector<float> weights = random_values<float>(kLanes, 8);
  std::vector<float> differences = random_values<float>((kBefore + 1) * kLanes, 9);
  std::vector<float> scales = random_values<float>(kLanes, 10), divisors = scales;
  std::vector<float> zeros = std::vector<float>(at(kLanes));
  std::vector<std::int16_t> codes = std::vector<std::int16_t>(at(kLanes));
  std::vector<double> losses = std::vector<double>(at(kLanes), 0.5);

  explicit RoundedColumn(Isa isa) {
    for (std::int64_t i = 0; i < kLanes; ++i) zeros[at(i)] = static_cast<float>(i % 16);
    divisors[3] = std::numeric_limits<float>::infinity();
    tile_kernels(isa).round({.targets = targets.data(),
                             .factor = factor.data(),
                             .before = kBefore,
                             .weights = weights.data(),
                             .scales = scales.data(),
                             .divisors = divisors.data(),
                             .zeros = zeros.data(),
                             .low = 0,
                             .high = 15,
                             .pivot = 1.5,
                             .differences = differences.data() + kBefore * kLanes,
                             .codes = codes.data(),
                             .losses = losses.data()});
  }
};

TEST(TileKernels, AColumnIsRoundedToTheNearestCodesOfItsTargets) {
  using Column = RoundedColumn;
  const Column found(chosen_isa());
  for (std::int64_t i = 0; i < Column::kLanes; ++i) {
    float target = found.targets[at(i)];
    for (std::int64_t q = 0; q < Column::kBefore; ++q)
      target = std::fma(found.factor[at(q * kTileRows)],
                        found.differences[at(q * Column::kLanes + i)], target);
    const auto zero = static_cast<int>(found.zeros[at(i)]);
    const int code = nearest_code(target, found.divisors[at(i)], zero, {0, 15});
    const float value = found.scales[at(i)] * static_cast<float>(code - zero);
    EXPECT_EQ(found.codes[at(i)], code) << i;
    EXPECT_EQ(found.differences[at(Column::kBefore * Column::kLanes + i)],
              found.weights[at(i)] - value);
    const auto error = static_cast<double>(target - value);
    EXPECT_EQ(found.losses[at(i)], 0.5 + 1.5 * error * error);
  }
  EXPECT_EQ(found.codes[3], 3) << "a group without a scale";
}

TEST(TileKernels, ColumnsAreRoundedAlikeOnEveryLevel) {
  const RoundedColumn portable(Isa::portable);
  for (const Isa isa : supported_isas()) {
    const RoundedColumn found(isa);
    EXPECT_EQ(found.codes, portable.codes) << isa_name(isa);
    EXPECT_EQ(found.differences, portable.differences) << isa_name(isa);
    EXPECT_EQ(found.losses, portable.losses) << isa_name(isa);
  }
}

struct MovedColumn {
  static constexpr std::int64_t kLanes = kPanelLanes<float>, kBefore = 3;
  static constexpr float kCurvature = 0.7f, kLeast = 0.501f;
  std::vector<float> gradients = random_values<float>(kLanes, 11);
  std::vector<float> factor = random_values<float>(kTileRows * kTileRows, 12);
  std::vector<float> scales = random_values<float>(kLanes, 13), divisors = scales;
  std::vector<std::int16_t> codes = std::vector<std::int16_t>(at(kLanes));
  std::vector<float> errors = random_values<float>(kLanes, 14);
  std::vector<float> changes = random_values<float>((kBefore + 1) * kLanes, 15);
  std::int64_t moves = 0;

  explicit MovedColumn(Isa isa) {
    for (std::int64_t i = 0; i < kLanes; ++i) codes[at(i)] = static_cast<std::int16_t>(i % 16 - 8);
    divisors[3] = std::numeric_limits<float>::infinity();
    moves = tile_kernels(isa).move({.gradients = gradients.data(),
                                    .factor = factor.data(),
                                    .before = kBefore,
                                    .scales = scales.data(),
                                    .divisors = divisors.data(),
                                    .curvature = kCurvature,
                                    .least_move = kLeast,
                                    .low = -8,
                                    .high = 7,
                                    .codes = codes.data(),
                                    .errors = errors.data(),
                                    .changes = changes.data() + kBefore * kLanes});
  }
};

TEST(TileKernels, AColumnMovesToWhereItsGradientIsLeast) {
  const MovedColumn found(chosen_isa());
  const std::vector<float> errors = random_values<float>(MovedColumn::kLanes, 14);
  std::int64_t moves = 0;
  for (std::int64_t i = 0; i < MovedColumn::kLanes; ++i) {
    float gradient = found.gradients[at(i)];
    for (std::int64_t q = 0; q < MovedColumn::kBefore; ++q)
      gradient = std::fma(found.factor[at(q * kTileRows)],
                          found.changes[at(q * MovedColumn::kLanes + i)], gradient);
    const float step = gradient / (MovedColumn::kCurvature * found.divisors[at(i)]);
    const int code = static_cast<int>(i % 16) - 8;
    const int move =
        std::fabs(step) > MovedColumn::kLeast ? nearest_code(step, 1, 0, {-8 - code, 7 - code}) : 0;
    EXPECT_EQ(found.codes[at(i)], code + move) << i;
    const float change = found.changes[at(MovedColumn::kBefore * MovedColumn::kLanes + i)];
    EXPECT_EQ(change, -(found.scales[at(i)] * static_cast<float>(move)));
    EXPECT_EQ(found.errors[at(i)], errors[at(i)] + change);
    moves += move != 0 ? 1 : 0;
  }
  EXPECT_EQ(found.moves, moves);
  EXPECT_GT(moves, 0);
  EXPECT_LT(moves, MovedColumn::kLanes);
}

TEST(TileKernels, ColumnsMoveAlikeOnEveryLevel) {
  const MovedColumn portable(Isa::portable);
  for (const Isa isa : supported_isas()) {
    const MovedColumn found(isa);
    EXPECT_EQ(found.moves, portable.moves) << isa_name(isa);
    EXPECT_EQ(found.codes, portable.codes) << isa_name(isa);
    EXPECT_EQ(found.errors, portable.errors) << isa_name(isa);
    EXPECT_EQ(found.changes, portable.changes) << isa_name(isa);
  }
}

TEST(TileKernels, DotProductsAreAddedLaneByLane) {
  constexpr std::int64_t kLanes = kPanelLanes<float>, kCount = 37;
  const std::vector<float> a = random_values<float>(kCount * kLanes, 16);
  const std::vector<float> b = random_values<float>(kCount * kLanes, 17);
  std::vector<double> portable(at(kLanes), 2.0);
  tile_kernels_portable().add_dots(a.data(), b.data(), kCount, portable.data());
  for (const Isa isa : supported_isas()) {
    std::vector<double> sums(at(kLanes), 2.0);
    tile_kernels(isa).add_dots(a.data(), b.data(), kCount, sums.data());
    EXPECT_EQ(sums, portable) << isa_name(isa);
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    double want = 2;
    for (std::int64_t k = 0; k < kCount; ++k)
      want += static_cast<double>(a[at(k * kLanes + lane)]) *
              static_cast<double>(b[at(k * kLanes + lane)]);
    EXPECT_NEAR(portable[at(lane)], want, 1e-5);
  }
}

}  // namespace
}  // namespace leq
