#include <gtest/gtest.h>

#include "base/error.h"
#include "naive_half.h"
#include "synthetic_site.h"

namespace leq {
namespace {

using namespace test;

using Numbers = std::vector<double>;

// Solves A x = b by elimination with row exchange; A is [n][n].
Numbers solved(Numbers a, Numbers b) {
  const std::size_t n = b.size();
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < n; ++r) {
      if (std::fabs(a[r * n + c]) > std::fabs(a[pivot * n + c])) pivot = r;
    }
    std::swap_ranges(a.begin() + static_cast<std::ptrdiff_t>(c * n),
                     a.begin() + static_cast<std::ptrdiff_t>(c * n + n),
                     a.begin() + static_cast<std::ptrdiff_t>(pivot * n));
    std::swap(b[c], b[pivot]);
    for (std::size_t r = c + 1; r < n; ++r) {
      const double factor = a[r * n + c] / a[c * n + c];
      for (std::size_t k = c; k < n; ++k) a[r * n + k] -= factor * a[c * n + k];
      b[r] -= factor * b[c];
    }
  }
  for (std::size_t c = n; c-- > 0;) {
    for (std::size_t k = c + 1; k < n; ++k) b[c] -= a[c * n + k] * b[k];
    b[c] /= a[c * n + c];
  }
  return b;
}

struct NaiveBinary {
  double mean = 0, size = 0;
};

NaiveBinary binary(const Numbers& x) {
  NaiveBinary found;
  for (const double v : x) found.mean += v / static_cast<double>(x.size());
  for (const double v : x) found.size += std::fabs(v - found.mean) / static_cast<double>(x.size());
  return found;
}

double level(const NaiveBinary& b, double x) {
  return x >= b.mean ? b.mean + b.size : b.mean - b.size;
}

NaiveBinary in_half(NaiveBinary b) {
  b.mean = nearest_f16(static_cast<double>(static_cast<float>(b.mean)));
  b.size = nearest_f16(static_cast<double>(static_cast<float>(b.size)));
  return b;
}

double one_level_error(const Numbers& x) {
  const NaiveBinary b = binary(x);
  double total = 0;
  for (const double v : x) total += std::pow(v - level(b, v), 2);
  return total;
}

double two_level_error(Numbers x) {
  const NaiveBinary b = binary(x);
  for (double& v : x) v -= level(b, v);
  return one_level_error(x);
}

// A block of a row's target weights, split by the method into salient, small and large columns.
struct Split {
  Numbers salient, small, large;
  Split(const Numbers& row, const std::vector<bool>& is_salient, double threshold) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      (is_salient[k] ? salient : std::fabs(row[k]) > threshold ? large : small).push_back(row[k]);
    }
  }
};

struct NaiveBillm {
  std::size_t rows, columns;
  Numbers h, weight, off;  // H damped [K][K], W and W - Wq [N][K]

  // Returns row n of the columns from `first` on, updated to compensate errors of earlier columns.
  Numbers target(std::size_t n, std::size_t first, std::size_t count) const {
    const std::size_t rest = columns - first;
    Numbers a(rest * rest), b(rest);
    for (std::size_t i = 0; i < rest; ++i) {
      for (std::size_t j = 0; j < rest; ++j) a[i * rest + j] = h[(first + i) * columns + first + j];
      for (std::size_t j = 0; j < first; ++j) {
        b[i] -= h[(first + i) * columns + j] * off[n * columns + j];
      }
    }
    const Numbers d = solved(a, b);
    Numbers x;
    for (std::size_t k = 0; k < count; ++k) x.push_back(weight[n * columns + first + k] - d[k]);
    return x;
  }

  // Returns 1 / [H^-1]_kk for the columns from k on.
  double pivot(std::size_t k) const {
    const std::size_t rest = columns - k;
    Numbers a(rest * rest), unit(rest);
    unit[0] = 1;
    for (std::size_t i = 0; i < rest; ++i) {
      for (std::size_t j = 0; j < rest; ++j) a[i * rest + j] = h[(k + i) * columns + k + j];
    }
    return 1 / solved(a, unit)[0];
  }

  std::vector<bool> salient_columns(const std::vector<Numbers>& x, std::size_t first) const {
    const std::size_t count = x[0].size();
    Numbers salience(count);
    for (std::size_t k = 0; k < count; ++k) {
      const double weighting = pivot(first + k);
      for (const Numbers& row : x) salience[k] += row[k] * row[k] * weighting;
    }
    std::vector<bool> best, marked(count);
    double least = 1e300;
    for (std::size_t chosen = 1; chosen <= std::min<std::size_t>(49, count - 1); ++chosen) {
      std::size_t next = count;
      for (std::size_t k = 0; k < count; ++k) {
        if (!marked[k] && (next == count || salience[k] > salience[next])) next = k;
      }
      marked[next] = true;
      double error = 0;
      for (const Numbers& row : x) {
        const Split split(row, marked, 1e300);
        error += two_level_error(split.salient) + one_level_error(split.small);
      }
      if (error < least) {
        least = error;
        best = marked;
      }
    }
    return best;
  }

  static double best_threshold(const std::vector<Numbers>& x, const std::vector<bool>& salient) {
    Numbers sizes;
    for (const Numbers& row : x) {
      for (std::size_t k = 0; k < row.size(); ++k) {
        if (!salient[k]) sizes.push_back(std::fabs(row[k]));
      }
    }
    std::sort(sizes.begin(), sizes.end());
    double best = 0, least = 1e300;
    for (int i = 0; i < 81; ++i) {
      const double place = (0.1 + 0.01 * i) * static_cast<double>(sizes.size() - 1);
      const double threshold = sizes[static_cast<std::size_t>(place)];
      double error = 0;
      for (const Numbers& row : x) {
        const Split split(row, salient, threshold);
        error += one_level_error(split.small);
        if (!split.large.empty()) error += one_level_error(split.large);
      }
      if (error < least) {
        least = error;
        best = threshold;
      }
    }
    return best;
  }

  void block(std::size_t first) {
    std::vector<Numbers> x;
    const std::size_t count = std::min<std::size_t>(128, columns - first);
    for (std::size_t n = 0; n < rows; ++n) x.push_back(target(n, first, count));
    const auto salient = salient_columns(x, first);
    const double threshold = best_threshold(x, salient);
    for (std::size_t n = 0; n < rows; ++n) {
      const Split split(x[n], salient, threshold);
      const NaiveBinary strong = in_half(binary(split.salient));
      Numbers rest;
      for (const double v : split.salient) rest.push_back(v - level(strong, v));
      const NaiveBinary second = in_half(binary(rest));
      const NaiveBinary small = in_half(binary(split.small));
      const NaiveBinary large = split.large.empty() ? small : in_half(binary(split.large));
      for (std::size_t k = 0; k < count; ++k) {
        const double v = x[n][k];
        double value = level(std::fabs(v) > threshold ? large : small, v);
        if (salient[k]) value = level(strong, v) + level(second, v - level(strong, v));
        off[n * columns + first + k] = weight[n * columns + first + k] - value;
      }
    }
  }
};

TEST(Billm, IsWhatItsDescriptionSays) {
  constexpr std::int64_t kColumns = 160;  // a full block and a partial one
  const auto weight = heavy_tailed(90, 10 * kColumns);
  const auto x = correlated_inputs(91, 400, kColumns);
  const InputStatistics statistics = statistics_of(x, kColumns);
  MethodInput input = method_input(weight, kColumns, "b1");
  input.statistics = &statistics;
  const auto found = rounded_by("billm", input);
  NaiveBillm naive{10, kColumns, statistics.hessian, Numbers(weight.begin(), weight.end()),
                   Numbers(weight.size())};
  for (std::size_t k = 0; k < kColumns; ++k) {
    naive.h[k * kColumns + k] *= 1 + input.options.damping;
  }
  for (std::size_t first = 0; first < kColumns; first += 128) naive.block(first);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    ASSERT_NEAR(found[i], naive.weight[i] - naive.off[i], 1e-6) << i;
  }
}

TEST(Billm, FeedbackLowersTheErrorOfTheOutputs) {
  constexpr std::int64_t kColumns = 256;
  const auto weight = heavy_tailed(92, 32 * kColumns);
  const auto x = correlated_inputs(93, 600, kColumns);
  InputStatistics statistics = statistics_of(x, kColumns);
  MethodInput input = method_input(weight, kColumns, "b1");
  input.statistics = &statistics;
  const double with = output_error(x, weight, rounded_by("billm", input), kColumns);
  for (std::size_t i = 0; i < statistics.hessian.size(); ++i) {
    if (i % (kColumns + 1) != 0) statistics.hessian[i] = 0;
  }
  const double without = output_error(x, weight, rounded_by("billm", input), kColumns);
  EXPECT_LT(with, 0.9 * without);
}

TEST(Billm, ASingularHessianIsDampedAndSilentChannelsAreAllowed) {
  constexpr std::int64_t kColumns = 192;
  const auto weight = heavy_tailed(94, 8 * kColumns);
  auto x = normals(95, 16 * kColumns);
  for (std::size_t t = 0; t < 16; ++t) x[t * kColumns + 7] = 0;
  const InputStatistics statistics = statistics_of(x, kColumns);
  MethodInput input = method_input(weight, kColumns, "b1");
  input.statistics = &statistics;
  input.options.damping = 0;
  const MethodResult result = require_method("billm").choose(input);
  EXPECT_FALSE(result.note.empty());
  EXPECT_LT(relative_error(weight, values_of(input, result.codes)), 0.5);
}

TEST(Billm, TheSameForAnyNumberOfThreads) {
  constexpr std::int64_t kColumns = 160;
  const auto weight = heavy_tailed(96, 33 * kColumns);
  const InputStatistics statistics = statistics_of(correlated_inputs(97, 300, kColumns), kColumns);
  MethodInput input = method_input(weight, kColumns, "b1");
  input.statistics = &statistics;
  const ChosenCodes alone = require_method("billm").choose(input).codes;
  ThreadPool pool(4);
  input.pool = &pool;
  const ChosenCodes together = require_method("billm").choose(input).codes;
  EXPECT_EQ(alone.codes, together.codes);
  EXPECT_EQ(alone.scales, together.scales);
  EXPECT_EQ(alone.zeros, together.zeros);
}

TEST(Billm, NeedsTheHessian) {
  const auto weight = normals(98, 4 * 128);
  EXPECT_THROW(require_method("billm").choose(method_input(weight, 128, "b1")), Error);
}

}  // namespace
}  // namespace leq
