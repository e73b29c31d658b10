// Matmuls of f32 inputs with wgmma and the copy engine of compute capability 9.0: close to double,
// and bit-identical to float_gemm.
#include <cstring>

#include "cuda/sim/emulator.h"
#include "float_gemm_case.h"
#include "hopper_device.h"

namespace leq::LEQ_GPU {
namespace {

class FloatWgmmaTest : public testing::TestWithParam<PieceCase> {
 protected:
  HopperDevice device_;
};

TEST_P(FloatWgmmaTest, GivesTheBitsOfMmaAndIsNear) {
  if (!device_.exists()) GTEST_SKIP() << "needs compute capability 9.0";
  const PieceCase& c = GetParam();
  const Problem problem(c);
  Inputs x(c.shape.tokens, c.shape.columns);
  const auto want = problem.run(x);
  const LaunchCount count("float_gemm_wgmma");
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{6, simt::CopyArrival::at_issue}}) {
    simt::schedule() = schedule;
    const auto found = problem.run(x, TermOrder::steps);
    expect_near(c, problem, x, found);
    EXPECT_EQ(std::memcmp(found.data(), want.data(), found.size() * sizeof(float)), 0);
  }
  count.expect(2);
}

INSTANTIATE_TEST_SUITE_P(Floats, FloatWgmmaTest,
                         testing::Values(f16({8, false, 0, 0, 70, 384, {70}}),
                                         f16({8, false, 0, 0, 300, 200, {130, 30, 17}}),
                                         f16({8, false, 0, 0, 129, 640, {65, 65}, Finish::swiglu}),
                                         f16({8, false, 0, 0, 66, 40, {140}, Finish::gelu}),
                                         f16({8, false, 0, 0, 131, 1000, {50}, Finish::add}),
                                         bf16({8, false, 0, 0, 65, 640, {70, 70}, Finish::swiglu}),
                                         bf16({8, false, 0, 0, 100, 900, {33, 130}, Finish::gelu}),
                                         bf16({8, false, 0, 0, 260, 97, {150, 9}, Finish::add})));

INSTANTIATE_TEST_SUITE_P(
    Codes, FloatWgmmaTest,
    testing::Values(codes({8, false, 0, 0, 70, 300, {40, 20}}),
                    codes({8, true, 0, 0, 129, 520, {140}, Finish::add}),
                    codes({8, false, 128, 0, 130, 640, {70, 70}, Finish::swiglu}),
                    codes({8, true, 64, 0, 66, 300, {40}}), codes({8, false, 32, 0, 66, 300, {40}}),
                    codes({4, false, 128, 0, 130, 1200, {140}}),
                    codes({4, true, 128, 0, 80, 640, {65, 65}, Finish::swiglu}),
                    codes({4, true, 64, 0, 129, 384, {40, 24, 8}, Finish::add}),
                    codes({4, true, 32, 0, 65, 333, {130}, Finish::gelu}),
                    codes({3, true, 128, 0, 129, 640, {70, 70}, Finish::swiglu}),
                    codes({3, false, 64, 0, 70, 384, {130}}),
                    codes({3, true, 32, 0, 70, 300, {40}, Finish::add}),
                    codes({2, true, 128, 0, 66, 520, {40}, Finish::gelu}),
                    codes({2, false, 64, 0, 100, 256, {129, 30}}),
                    codes({2, true, 32, 0, 131, 1030, {40}})));

class OddWgmmaRows : public FloatWgmmaTest {};

TEST_P(OddWgmmaRows, StayAloneAndAgreeWithSumsInDouble) {
  if (!device_.exists()) GTEST_SKIP() << "needs compute capability 9.0";
  const PieceCase& c = GetParam();
  const Problem problem(c);
  Inputs x = odd_inputs(c.shape.columns);
  const auto good = problem.run(x, TermOrder::steps);
  for (const float y : good) ASSERT_TRUE(std::isfinite(y));
  expect_near(c, problem, x, good);
  std::vector<float> numbers;
  for (int t = 0; t < 6; ++t) {
    for (int k = 0; k < c.shape.columns; ++k) numbers.push_back(x.at(t, k));
  }
  numbers[static_cast<std::size_t>(c.shape.columns + 3)] = NAN;
  Inputs bad_rows(numbers, 6, c.shape.columns);
  const auto bad = problem.run(bad_rows, TermOrder::steps);
  for (std::size_t t = 0; t < 6; ++t) {
    for (std::size_t n = 0; n < static_cast<std::size_t>(c.shape.outputs()); ++n) {
      const std::size_t at = t * static_cast<std::size_t>(problem.stride()) + n;
      EXPECT_TRUE(t == 1 ? std::isnan(bad[at]) : bad[at] == good[at]) << t << ", column " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OddWgmmaRows,
                         testing::Values(f16({8, false, 0, 0, 6, 300, {24}}),
                                         bf16({8, false, 0, 0, 6, 300, {24}}),
                                         codes({4, true, 64, 0, 6, 300, {24}})));

TEST(TermOrder, IsThatOfWgmmaForManyTokens) {
  rt::DeviceInfo device;
  device.major = 9;
  EXPECT_EQ(term_order(129, device), TermOrder::steps);
  EXPECT_EQ(term_order(128, device), TermOrder::lanes);
  device.major = 12;
  EXPECT_EQ(term_order(4096, device), TermOrder::lanes);
}

}  // namespace
}  // namespace leq::LEQ_GPU
