// Compares the rotation of rows with the dense matrix of signs in double, and tests its properties.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

// There are 12 levels of sums, each rounded to 2^-24 of a value that grows by sqrt(2) per level.
constexpr double kTolerance = 2e-6;
constexpr std::int64_t kTokens = 5;
// Widths and blocks: not powers of two, a single block, the smallest block, sizes of an LLM.
constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{160, 32},  {192, 64}, {432, 16},
                                                             {256, 256}, {6, 2},    {4096, 4096}};

std::vector<float> factors_of(std::int64_t width, std::int64_t block, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> factors;
  for (std::int64_t k = 0; k < width; ++k) {
    const float sign = random.below(2) == 0 ? 1.0f : -1.0f;
    factors.push_back(sign / std::sqrt(static_cast<float>(block)));
  }
  return factors;
}

// A backend's rows, and the operations on them.
struct Bench {
  std::unique_ptr<Backend> backend;
  RotationTable table;
  Rows rows;

  Bench(Isa isa, int threads, std::int64_t width, std::int64_t block, NormKind norm)
      : backend(make_cpu_backend({threads, isa})),
        table(make_rotation(backend->memory(), factors_of(width, block, 4), block, norm)),
        rows(backend->allocate_rows(kTokens, width, {})) {
    Random random(9);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t k = 0; k < width; ++k) {
        rows.values[t * rows.value_stride + k] = 3 * random.normal() + 0.5f;
      }
    }
  }
  std::vector<float> turn(Direction way) {
    backend->rotate(rows, kTokens, table, way);
    return values();
  }
  std::vector<float> values() {
    std::vector<float> out(static_cast<std::size_t>(kTokens * rows.width));
    backend->download(rows, kTokens, out);
    return out;
  }
};

// Within a block: y_i = sum over j of (-1)^popcount(i & j) * factor_j * (x_j - mean).
std::vector<double> dense(const float* x, std::int64_t width, std::int64_t block,
                          const std::vector<float>& factors, double mean) {
  std::vector<double> y(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t j = 0; j < block; ++j) {
      const std::int64_t from = i / block * block + j;
      const auto shared = static_cast<std::uint64_t>(i % block) & static_cast<std::uint64_t>(j);
      const double value = (double{x[from]} - mean) * factors[static_cast<std::size_t>(from)];
      y[static_cast<std::size_t>(i)] += std::popcount(shared) % 2 == 0 ? value : -value;
    }
  }
  return y;
}

TEST(Rotate, IsTheDenseMatrixOfSigns) {
  for (const auto& [width, block] : kShapes) {
    for (const NormKind norm : {NormKind::rms, NormKind::layer}) {
      Bench bench(Isa::portable, 1, width, block, norm);
      const auto x = bench.values();
      const auto y = bench.turn(Direction::forward);
      const auto factors = factors_of(width, block, 4);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const float* row = x.data() + t * width;
        const double mean = norm == NormKind::layer ? std::accumulate(row, row + width, 0.0) /
                                                          static_cast<double>(width)
                                                    : 0.0;
        const auto want = dense(row, width, block, factors, mean);
        for (std::int64_t k = 0; k < width; ++k) {
          ASSERT_NEAR(y[static_cast<std::size_t>(t * width + k)], want[static_cast<std::size_t>(k)],
                      20 * kTolerance)
              << width << "/" << block << " row " << t << " column " << k;
        }
      }
    }
  }
}

TEST(Rotate, InAndBackIsTheIdentityWithoutTheMean) {
  for (const auto& [width, block] : kShapes) {
    for (const NormKind norm : {NormKind::rms, NormKind::layer}) {
      Bench bench(Isa::portable, 2, width, block, norm);
      const auto x = bench.values();
      EXPECT_NE(bench.turn(Direction::forward), x);
      const auto again = bench.turn(Direction::inverse);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const float* row = x.data() + t * width;
        const double mean = std::accumulate(row, row + width, 0.0) / static_cast<double>(width);
        for (std::int64_t k = 0; k < width; ++k) {
          const double want = row[k] - (norm == NormKind::layer ? mean : 0.0);
          ASSERT_NEAR(again[static_cast<std::size_t>(t * width + k)], want, 20 * kTolerance);
        }
      }
    }
  }
}

TEST(Rotate, KeepsTheEnergyOfEachRow) {
  for (const auto& [width, block] : kShapes) {
    Bench bench(Isa::portable, 1, width, block, NormKind::rms);
    const auto x = bench.values();
    const auto y = bench.turn(Direction::forward);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const auto squares = [&](const std::vector<float>& of) {
        double sum = 0;
        for (std::int64_t k = 0; k < width; ++k) {
          const double value = of[static_cast<std::size_t>(t * width + k)];
          sum += value * value;
        }
        return sum;
      };
      EXPECT_NEAR(squares(y) / squares(x), 1.0, kTolerance) << width;
    }
  }
}

TEST(Rotate, EveryIsaAndThreadCountGivesTheSameBits) {
  for (const auto& [width, block] : kShapes) {
    Bench portable(Isa::portable, 1, width, block, NormKind::layer);
    const auto in = portable.turn(Direction::forward);
    const auto back = portable.turn(Direction::inverse);
    for (const Isa isa : supported_isas()) {
      for (const int threads : {1, 2, 4}) {
        Bench bench(isa, threads, width, block, NormKind::layer);
        EXPECT_EQ(bench.turn(Direction::forward), in) << isa_name(isa);
        EXPECT_EQ(bench.turn(Direction::inverse), back) << isa_name(isa);
      }
    }
  }
}

TEST(Rotate, RefusesBlocksAndRowsThatDoNotFit) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  const auto factors = factors_of(96, 32, 1);
  for (const std::int64_t block : {0, 1, 3, 24, 64, -32}) {
    EXPECT_THROW(make_rotation(backend->memory(), factors, block, NormKind::rms), Error) << block;
  }
  const RotationTable table = make_rotation(backend->memory(), factors, 32, NormKind::rms);
  Rows rows = backend->allocate_rows(2, 128, {});
  EXPECT_THROW(backend->rotate(rows, 2, table, Direction::forward), Error);
  Rows few = backend->allocate_rows(2, 96, {});
  EXPECT_THROW(backend->rotate(few, 3, table, Direction::forward), Error);
}

}  // namespace
}  // namespace leq
