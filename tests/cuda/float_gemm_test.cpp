// Matmuls of f32 inputs on tensor cores, on the emulator: close to double for 16-bit floats and
// codes of every kind, and bit-identical for every tile, number of tokens and order of threads.
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/sim/emulator.h"
#include "float_gemm_case.h"

namespace leq::LEQ_GPU {
namespace {

class FloatGemmTest : public testing::TestWithParam<PieceCase> {
 protected:
  FloatGemmTest() { simt::schedule() = {4, simt::CopyArrival::at_wait}; }
  ~FloatGemmTest() override { simt::schedule() = {}; }
};

TEST_P(FloatGemmTest, AgreesWithSumsInDouble) {
  const Problem problem(GetParam());
  Inputs x(GetParam().shape.tokens, GetParam().shape.columns);
  expect_near(GetParam(), problem, x, problem.run(x));
}

// Tests every tile in every order of threads, and every way to split the tokens.
TEST_P(FloatGemmTest, BitsDependOnTheTokenAlone) {
  const IntCase& c = GetParam().shape;
  const Problem problem(GetParam());
  Inputs x(c.tokens, c.columns);
  const auto whole = problem.run(x);
  for (const FloatTile tile : {FloatTile::few, FloatTile::middle, FloatTile::large}) {
    for (const auto lands : {simt::CopyArrival::at_wait, simt::CopyArrival::at_issue}) {
      simt::schedule() = {7, lands};
      EXPECT_EQ(problem.run(x, 0, c.tokens, tile), whole) << "tile " << static_cast<int>(tile);
    }
  }
  for (const int step : {1, 3, 17}) {
    if (step >= c.tokens) break;
    for (int first = 0; first < c.tokens; first += step * 2) {  // every second part suffices
      const int count = std::min(step, c.tokens - first);
      const auto part = problem.run(x, first, count, {});
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + first * problem.stride(),
                            part.size() * sizeof(float)),
                0)
          << count << " tokens from " << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FloatGemmTest,
    testing::Values(f16({8, false, 0, 0, 1, 512, {33}, Finish::add}),
                    f16({8, false, 0, 0, 3, 40, {40, 40}, Finish::swiglu}),
                    f16({8, false, 0, 0, 40, 1300, {70, 9}}),
                    f16({8, false, 0, 0, 17, 97, {130}, Finish::gelu}),
                    bf16({8, false, 0, 0, 4, 257, {65}, Finish::gelu}),
                    bf16({8, false, 0, 0, 19, 200, {31, 17, 8}}),
                    bf16({8, false, 0, 0, 20, 64, {50, 50}, Finish::swiglu}),
                    codes({8, false, 0, 0, 1, 100, {70}}), codes({8, false, 128, 0, 18, 300, {40}}),
                    codes({8, true, 0, 0, 3, 200, {33}}), codes({8, true, 32, 0, 20, 200, {33}}),
                    codes({8, false, 64, 0, 2, 1100, {20, 5}, Finish::add}),
                    codes({4, false, 128, 0, 1, 1640, {40, 40}, Finish::swiglu}),
                    codes({4, false, 128, 0, 33, 333, {40, 24, 8}}),
                    codes({4, true, 32, 0, 5, 333, {40, 24, 8}}),
                    codes({4, true, 64, 0, 18, 130, {70, 70}, Finish::swiglu}),
                    codes({3, true, 64, 0, 2, 700, {40}, Finish::gelu}),
                    codes({3, false, 128, 0, 18, 130, {40}}),
                    codes({3, true, 32, 0, 7, 250, {40}, Finish::add}),
                    codes({2, true, 32, 0, 4, 520, {40}, Finish::add}),
                    codes({2, false, 128, 0, 20, 250, {70}}),
                    codes({2, true, 64, 0, 1, 250, {40}})));

class FloatManyTokens : public FloatGemmTest {};

TEST_P(FloatManyTokens, AgreeWithSumsInDouble) {
  const Problem problem(GetParam());
  Inputs x(GetParam().shape.tokens, GetParam().shape.columns);
  expect_near(GetParam(), problem, x, problem.run(x));
}

INSTANTIATE_TEST_SUITE_P(
    ManyTokens, FloatManyTokens,
    testing::Values(f16({8, false, 0, 0, 300, 1000, {130, 30, 17}}),
                    bf16({8, false, 0, 0, 140, 640, {70, 70}, Finish::swiglu}),
                    codes({8, false, 0, 0, 130, 300, {140}}),
                    codes({4, true, 128, 0, 130, 640, {70, 70}, Finish::swiglu}),
                    codes({3, true, 64, 0, 130, 640, {130}, Finish::add}),
                    codes({2, true, 32, 0, 131, 520, {40}})));

class OddRows : public testing::TestWithParam<PieceCase> {};

TEST_P(OddRows, AgreeWithSumsInDouble) {
  const Problem problem(GetParam());
  Inputs x = odd_inputs(GetParam().shape.columns);
  const auto found = problem.run(x);
  for (const float y : found) ASSERT_TRUE(std::isfinite(y));
  expect_near(GetParam(), problem, x, found);
}

TEST_P(OddRows, OnesThatAreNotFiniteStayAlone) {
  const IntCase& c = GetParam().shape;
  const Problem problem(GetParam());
  const auto good = Inputs::normal_numbers(5 * c.columns);
  auto bad = good;
  bad[static_cast<std::size_t>(c.columns + 3)] = NAN;
  bad[static_cast<std::size_t>(3 * c.columns + 4)] = INFINITY;
  Inputs good_rows(good, 5, c.columns), bad_rows(bad, 5, c.columns);
  for (const FloatTile tile : {FloatTile::few, FloatTile::middle}) {
    const auto want = problem.run(good_rows, 0, 5, tile);
    const auto found = problem.run(bad_rows, 0, 5, tile);
    for (std::size_t t = 0; t < 5; ++t) {
      for (std::size_t n = 0; n < static_cast<std::size_t>(c.outputs()); ++n) {
        const std::size_t at = t * static_cast<std::size_t>(problem.stride()) + n;
        if (t == 1 || t == 3) {
          EXPECT_FALSE(std::isfinite(found[at])) << "token " << t << ", column " << n;
        } else {
          EXPECT_EQ(found[at], want[at]) << "token " << t << ", column " << n;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OddRows,
                         testing::Values(f16({8, false, 0, 0, 6, 300, {24}}),
                                         bf16({8, false, 0, 0, 6, 300, {24}}),
                                         codes({8, false, 0, 0, 6, 300, {24}}),
                                         codes({4, true, 64, 0, 6, 300, {24}})));

// An f32 number is the sum of its 16-bit parts ("terms"), whose positions launch.h defines.
TEST(Terms, MakeTheirNumbersAndPadsAreZero) {
  constexpr int kColumns = 300, kPadded = 384;
  Inputs x = odd_inputs(kColumns);
  for (const int count : {2, 3}) {
    x.terms(count);
    const auto cut = x.cut();
    const auto scales = x.scales();
    for (int t = 0; t < 6; ++t) {
      const double scale = double{scales[static_cast<std::size_t>(t * 2)]} *
                           scales[static_cast<std::size_t>(t * 2 + 1)];
      for (int k = 0; k < kPadded; ++k) {
        const int lane = k % 16 / 4, step = k % 32 / 16, j = k % 4;
        const int place = lane * 8 + step * 4 + j;
        double sum = 0;
        for (int term = 0; term < count; ++term) {
          const int at = ((t * kPadded / 32 + k / 32) * count + term) * 32 + place;
          const std::uint16_t half = cut[static_cast<std::size_t>(at)];
          sum += count == 2 ? f16_to_f32(half) : bf16_to_f32(half);
        }
        const double want = k < kColumns ? x.at(t, k) : 0.0;
        const double error =
            std::max(std::abs(want) * 0x1p-23, count == 2 ? x.largest(t) * 0x1p-39 : 0.0);
        ASSERT_NEAR(sum * scale, want, error) << count << " terms, row " << t << ", column " << k;
      }
    }
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
