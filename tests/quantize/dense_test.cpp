#include "quantize/linear_algebra/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "base/random.h"
#include "quantize/random_values.h"
#include "ranks/communicator.h"

namespace leq {
namespace {

// Computes X^T X by definition, in double.
std::vector<double> outer_products(const std::vector<float>& x, std::int64_t tokens,
                                   std::int64_t columns) {
  std::vector<double> h(at(columns * columns));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < columns; ++i) {
      const double left = static_cast<double>(x[at(t * columns + i)]);
      for (std::int64_t j = 0; j < columns; ++j)
        h[at(i * columns + j)] += left * static_cast<double>(x[at(t * columns + j)]);
    }
  }
  return h;
}

// Returns a random positive definite matrix R R^T + I; R is upper triangular with a unit diagonal.
std::vector<double> positive_matrix(std::int64_t n, std::uint64_t seed) {
  const std::vector<float> r = random_values(2 * n * n, seed);
  std::vector<double> h = outer_products(r, 2 * n, n);
  for (std::int64_t i = 0; i < n; ++i) h[at(i * n + i)] += 1.0;
  return h;
}

TEST(Dense, OuterProductsAreTheDefinition) {
  for (const auto& [tokens, columns] :
       {std::pair{1, 1}, {5, 3}, {300, 70}, {2500, 33}, {64, 600}}) {
    const std::vector<float> x = random_values(tokens * columns, 7);
    const std::vector<double> want = outer_products(x, tokens, columns);
    std::vector<double> h(at(columns) * at(columns));
    ThreadPool pool(2);
    add_outer_products(x, tokens, columns, h, pool);
    // The error of f32 sums of at most 2,048 products each, relative to the diagonal.
    const double bound = 1e-5 * tokens;
    for (std::size_t i = 0; i < h.size(); ++i)
      ASSERT_NEAR(h[i], want[i], bound) << tokens << " x " << columns << ", entry " << i;
  }
}

TEST(Dense, OuterProductsAddToWhatIsThereAndAreSymmetric) {
  constexpr std::int64_t kTokens = 40, kColumns = 270;
  const std::vector<float> x = random_values(kTokens * kColumns, 8);
  ThreadPool pool(2);
  std::vector<double> once(at(kColumns * kColumns)), twice = once;
  add_outer_products(x, kTokens, kColumns, once, pool);
  add_outer_products(x, kTokens, kColumns, twice, pool);
  add_outer_products(x, kTokens, kColumns, twice, pool);
  for (std::int64_t i = 0; i < kColumns; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      ASSERT_EQ(once[at(i * kColumns + j)], once[at(j * kColumns + i)]);
      ASSERT_EQ(twice[at(i * kColumns + j)], 2 * once[at(i * kColumns + j)]);
    }
  }
}

LowerMatrix lower_of(const std::vector<double>& a, std::int64_t n) {
  LowerMatrix lower(n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) lower.at(i, j) = a[at(i * n + j)];
  }
  return lower;
}

bool has_factor(const std::vector<double>& a, std::int64_t n, ThreadPool& pool) {
  LowerMatrix lower = lower_of(a, n);
  return factor_lower(lower, pool);
}

// Tiles divided into any number of shares give the same bits as all tiles together.
TEST(Dense, SharesOfTilesAreTheWhole) {
  constexpr std::int64_t kTokens = 300, kColumns = 1000;
  const std::vector<float> x = random_values(kTokens * kColumns, 8);
  ThreadPool pool(2);
  std::vector<double> whole(kColumns * kColumns, 0.0);
  add_outer_products(x, kTokens, kColumns, whole, pool);
  for (const std::int64_t count : {2, 3, 7}) {
    std::vector<double> joined(kColumns * kColumns, -1.0);
    for (std::int64_t index = 0; index < count; ++index) {
      std::vector<double> own(kColumns * kColumns, 0.0);
      add_outer_products(x, kTokens, kColumns, own, pool, {index, count});
      for (const TileCorners& tile : tiles_of(kColumns, {index, count})) {
        for (std::int64_t i = tile.top; i < tile.bottom; ++i) {
          std::copy(own.begin() + i * kColumns + tile.left, own.begin() + i * kColumns + tile.right,
                    joined.begin() + i * kColumns + tile.left);
        }
        mirror(tile, kColumns, joined);
      }
    }
    EXPECT_EQ(joined == whole, true) << count << " shares";
  }
}

TEST(Dense, TheLowerFactorsTransposeTimesItIsTheMatrix) {
  for (const std::int64_t n : {1, 2, 31, 119, 120, 121, 240, 300, 361, 580}) {
    const std::vector<double> a = positive_matrix(n, 9);
    LowerMatrix v = lower_of(a, n);
    ThreadPool pool(2);
    ASSERT_TRUE(factor_lower(v, pool)) << n;
    double worst = 0, largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = i; j < n; ++j) {
        double sum = 0;
        for (std::int64_t k = j; k < n; ++k) sum += v.at(k, i) * v.at(k, j);
        worst = std::max(worst, std::fabs(sum - a[at(i * n + j)]));
        largest = std::max(largest, std::fabs(a[at(i * n + j)]));
      }
    }
    EXPECT_LT(worst, 1e-13 * static_cast<double>(n) * largest) << n;
  }
}

TEST(Dense, SingularAndIndefiniteMatricesHaveNoFactor) {
  ThreadPool pool(2);
  constexpr std::int64_t kColumns = 200;
  const std::vector<float> x = random_values(50 * kColumns, 10);
  std::vector<double> singular = outer_products(x, 50, kColumns);
  EXPECT_FALSE(has_factor(singular, kColumns, pool));
  std::vector<double> indefinite = {1, 2, 2, 1};
  EXPECT_FALSE(has_factor(indefinite, 2, pool));
  std::vector<double> zero(4);
  EXPECT_FALSE(has_factor(zero, 2, pool));
}

TEST(Dense, ResultsDoNotDependOnTheNumberOfThreads) {
  constexpr std::int64_t kTokens = 2300, kColumns = 530;  // two pairs of blocks and a partial block
  const std::vector<float> x = random_values(kTokens * kColumns, 11);
  std::vector<double> first_h, first_v;
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    std::vector<double> h(at(kColumns * kColumns));
    add_outer_products(x, kTokens, kColumns, h, pool);
    LowerMatrix factor = lower_of(h, kColumns);
    ASSERT_TRUE(factor_lower(factor, pool));
    std::vector<double> v;
    for (std::int64_t i = 0; i < kColumns; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) v.push_back(factor.at(i, j));
    }
    if (threads == 1) {
      first_h = h;
      first_v = v;
    }
    EXPECT_EQ(h, first_h) << threads;
    EXPECT_EQ(v, first_v) << threads;
  }
}

// Matrices have a partial block, and odd and even numbers of blocks; there are more ranks than
// squares in a row, and more ranks than squares.
TEST(Dense, RanksThatDivideTheFactorHaveTheBitsOfOne) {
  for (const std::int64_t n : {31, 120, 361, 700}) {
    const std::vector<double> a = positive_matrix(n, 12);
    ThreadPool pool(2);
    LowerMatrix want = lower_of(a, n);
    ASSERT_TRUE(factor_lower(want, pool));
    for (const int count : {2, 3, 8}) {
      ThreadRanks ranks(count, {.threads = count});
      std::vector<LowerMatrix> found;
      for (int rank = 0; rank < count; ++rank) found.push_back(lower_of(a, n));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < count; ++rank) {
        threads.emplace_back([&, rank] {
          ThreadPool alone(1);
          EXPECT_TRUE(factor_lower(found[static_cast<std::size_t>(rank)], alone, ranks[rank]));
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const LowerMatrix& l : found) {
        for (std::int64_t i = 0; i < n; ++i) {
          for (std::int64_t j = 0; j <= i; ++j)
            ASSERT_EQ(l.at(i, j), want.at(i, j))
                << n << ", " << count << " ranks: " << i << ", " << j;
        }
      }
    }
  }
}

// All ranks must report the missing factor, whichever rank finds the pivot that is not positive.
TEST(Dense, RanksAgreeThatThereIsNoFactor) {
  constexpr std::int64_t kColumns = 500;
  const std::vector<float> x = random_values(50 * kColumns, 10);
  const std::vector<double> singular = outer_products(x, 50, kColumns);
  ThreadRanks ranks(3, {.threads = 3});
  std::vector<int> has(3, 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadPool alone(1);
      LowerMatrix lower = lower_of(singular, kColumns);
      has[static_cast<std::size_t>(rank)] = factor_lower(lower, alone, ranks[rank]) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(has, std::vector<int>(3, 0));
}

template <class Real>
void expect_products(std::int64_t rows, std::int64_t inner, std::int64_t columns, double bound) {
  constexpr std::int64_t kMore = 3;  // padding between rows, which must be unchanged
  const auto values = [](std::int64_t count, std::uint64_t seed) {
    const std::vector<float> narrow = random_values(count, seed);
    return std::vector<Real>(narrow.begin(), narrow.end());
  };
  const std::vector<Real> a = values(rows * (inner + kMore), 12);
  const std::vector<Real> b = values(inner * (columns + kMore), 13);
  std::vector<Real> c(at(rows * (columns + kMore)), Real{1});
  add_product(Block<const Real>{a.data(), rows, inner, inner + kMore},
              Block<const Real>{b.data(), inner, columns, columns + kMore},
              Block<Real>{c.data(), rows, columns, columns + kMore});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns + kMore; ++j) {
      double want = 1;
      for (std::int64_t k = 0; k < inner && j < columns; ++k)
        want += static_cast<double>(a[at(i * (inner + kMore) + k)]) *
                static_cast<double>(b[at(k * (columns + kMore) + j)]);
      ASSERT_NEAR(static_cast<double>(c[at(i * (columns + kMore) + j)]), want, bound)
          << rows << " x " << inner << " x " << columns << ": " << i << ", " << j;
    }
  }
}

TEST(Dense, ProductsAreTheDefinition) {
  const std::int64_t shapes[][3] = {{1, 1, 1},    {24, 70, 33},  {8, 128, 48}, {200, 129, 400},
                                    {9, 300, 49}, {193, 5, 385}, {3, 0, 3}};
  for (const auto& [rows, inner, columns] : shapes) {
    expect_products<float>(rows, inner, columns, 1e-4);
    expect_products<double>(rows, inner, columns, 1e-12);
  }
}

TEST(Dense, ProductsOfLanesAreTheDefinition) {
  constexpr std::int64_t kInner = 300, kColumns = 45, kPanels = 2, kFirst = 100;
  constexpr std::int64_t kLanes = kPanelLanes<float>;
  ThreadPool pool(2);
  const std::vector<float> values = random_values(kInner * kInner, 15);
  const auto f = slice_columns(
      kInner, pool, [](std::int64_t) { return kInner; },
      [&](std::int64_t k, std::int64_t j) { return values[at(k * kInner + j)]; });
  const std::vector<float> numbers = random_values(kPanels * kInner * kLanes, 16);
  LanePanels<float> b(kPanels, kInner), c(kPanels, 48);
  std::copy(numbers.begin(), numbers.end(), b.at(0, 0));
  add_lane_product(f, LaneProduct{.depth = {kFirst, kInner},
                                  .columns = {128, 128 + kColumns},
                                  .b = b,
                                  .c = c,
                                  .panels = kPanels});
  for (std::int64_t panel = 0; panel < kPanels; ++panel) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        double want = 0;
        for (std::int64_t k = kFirst; k < kInner; ++k)
          want += static_cast<double>(values[at(k * kInner + 128 + j)]) *
                  static_cast<double>(numbers[at((panel * kInner + k) * kLanes + lane)]);
        ASSERT_NEAR(static_cast<double>(c.at(panel, j)[lane]), want, 1e-4) << panel << ", " << j;
      }
    }
  }
}

TEST(Dense, SolvesAPositiveSystem) {
  constexpr std::int64_t kSize = 37;
  const std::vector<double> a = positive_matrix(kSize, 14);
  std::vector<double> want(at(kSize)), b(at(kSize));
  for (std::int64_t i = 0; i < kSize; ++i) want[at(i)] = static_cast<double>(i % 7) - 3.0;
  for (std::int64_t i = 0; i < kSize; ++i) {
    for (std::int64_t j = 0; j < kSize; ++j) b[at(i)] += a[at(i * kSize + j)] * want[at(j)];
  }
  std::vector<double> spoilt = a;
  ASSERT_TRUE(solve_positive(spoilt, b));
  for (std::int64_t i = 0; i < kSize; ++i) EXPECT_NEAR(b[at(i)], want[at(i)], 1e-9);
}

}  // namespace
}  // namespace leq
