// Integer matmuls on the emulator: int32 sums exactly, and floats equal to the bit to the formulas
// of docs/numerics.md, under several schedules of lanes, warps, blocks and copies.
#include "int_matmul_case.h"

#include "cuda/int_matmul.h"
#include "cuda/sim/emulator.h"

namespace leq::LEQ_GPU {
namespace {

class IntMatmulTest : public testing::TestWithParam<IntCase> {
 protected:
  ~IntMatmulTest() override { simt::schedule() = {}; }
};

TEST_P(IntMatmulTest, IntegersAreExact) {
  const IntCase& c = GetParam();
  const IntMatmulData data(c);
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{5, simt::CopyLands::at_issue}}) {
    simt::schedule() = schedule;
    expect_exact_integers(c, data);
  }
}

TEST_P(IntMatmulTest, ValuesFollowTheFormula) {
  simt::schedule() = {3, simt::CopyLands::at_wait};
  expect_values(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    FewTokens, IntMatmulTest,
    testing::Values(
        IntCase{8, false, 0, 0, 1, 384, {70}}, IntCase{8, false, 0, 0, 2, 100, {64, 30, 17}},
        IntCase{8, false, 0, 0, 5, 1024, {40, 40}, Finish::swiglu},
        IntCase{8, false, 0, 128, 3, 1000, {50}, Finish::add},
        IntCase{8, false, 128, 128, 8, 640, {33}, Finish::gelu},
        IntCase{8, false, 32, 0, 1, 384, {40}}, IntCase{8, true, 0, 0, 4, 300, {40}},
        IntCase{8, true, 64, 128, 7, 512, {40}}, IntCase{8, true, 0, 128, 1, 512, {40}},
        IntCase{4, false, 128, 128, 1, 1024, {70}},
        IntCase{4, false, 128, 0, 4, 640, {41, 41}, Finish::swiglu},
        IntCase{4, true, 32, 128, 2, 300, {40, 24, 8}}, IntCase{3, false, 128, 0, 1, 1024, {40}},
        IntCase{3, true, 64, 128, 3, 640, {40}}, IntCase{2, false, 128, 128, 1, 2048, {100}},
        IntCase{2, true, 32, 0, 4, 5200, {40}, Finish::gelu},
        IntCase{8, false, 0, 128, 2, 17000, {20}}, IntCase{4, true, 64, 128, 3, 9000, {20}}));

// Every tile, with tails in tokens, rows and columns.
INSTANTIATE_TEST_SUITE_P(
    ManyTokens, IntMatmulTest,
    testing::Values(
        IntCase{8, false, 0, 0, 9, 384, {70}}, IntCase{8, false, 0, 0, 16, 1000, {64, 30, 17}},
        IntCase{8, false, 0, 0, 70, 300, {40, 40}, Finish::swiglu},
        IntCase{8, false, 0, 128, 13, 1000, {50}, Finish::add},
        IntCase{8, false, 128, 128, 65, 640, {33}, Finish::gelu},
        IntCase{8, false, 32, 0, 11, 384, {40}}, IntCase{8, true, 0, 0, 20, 300, {40}},
        IntCase{8, true, 64, 128, 17, 512, {40}}, IntCase{8, true, 0, 128, 9, 512, {40}},
        IntCase{4, false, 128, 128, 5, 1024, {70}},
        IntCase{4, false, 128, 0, 33, 640, {41, 41}, Finish::swiglu},
        IntCase{4, true, 32, 128, 70, 300, {40, 24, 8}}, IntCase{3, false, 128, 0, 6, 1024, {40}},
        IntCase{3, true, 64, 128, 66, 640, {40}}, IntCase{2, false, 128, 128, 16, 2048, {100}},
        IntCase{2, true, 32, 0, 17, 520, {40}, Finish::gelu}));

// 28,672 columns of the largest codes: the sums are far from overflowing.
INSTANTIATE_TEST_SUITE_P(
    Extremes, IntMatmulTest,
    testing::Values(IntCase{8, false, 0, 0, 1, 28672, {16}, Finish::store, true},
                    IntCase{8, true, 128, 128, 2, 28672, {16}, Finish::store, true},
                    IntCase{4, true, 128, 0, 1, 28672, {16}, Finish::store, true},
                    IntCase{8, false, 0, 0, 9, 28672, {16}, Finish::store, true},
                    IntCase{8, true, 128, 128, 9, 28672, {16}, Finish::store, true}));

struct LargeCase {
  friend void PrintTo(const LargeCase& c, std::ostream* out) { PrintTo(c.matmul, out); }

  IntCase matmul;
  IntMatmulData::Launch launch;
};
class LargeTileTest : public testing::TestWithParam<LargeCase> {
 protected:
  ~LargeTileTest() override { simt::schedule() = {}; }
};

TEST_P(LargeTileTest, IntegersAndValuesAreExact) {
  const LargeCase& c = GetParam();
  const IntMatmulData data(c.matmul);
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{6, simt::CopyLands::at_issue}}) {
    simt::schedule() = schedule;
    expect_exact_integers(c.matmul, data, c.launch);
    expect_values(c.matmul, c.launch);
  }
}

void large_8(const IntMatmul& a, rt::Stream& s) { launch_int_gemm_8(a, GemmTile::large, s); }
void large_4(const IntMatmul& a, rt::Stream& s) { launch_int_gemm_4(a, GemmTile::large, s); }
void large_3(const IntMatmul& a, rt::Stream& s) { launch_int_gemm_3(a, GemmTile::large, s); }
void large_2(const IntMatmul& a, rt::Stream& s) { launch_int_gemm_2(a, GemmTile::large, s); }

// Only large matmuls choose this tile, so it is launched directly.
INSTANTIATE_TEST_SUITE_P(
    Tails, LargeTileTest,
    testing::Values(LargeCase{{8, false, 0, 0, 130, 640, {70, 130}}, large_8},
                    LargeCase{{8, false, 0, 0, 20, 200, {70, 70}, Finish::swiglu}, large_8},
                    LargeCase{{8, false, 0, 128, 100, 500, {129}}, large_8},
                    LargeCase{{4, true, 128, 128, 64, 384, {65, 65}, Finish::swiglu}, large_4},
                    LargeCase{{3, true, 128, 0, 33, 512, {127}, Finish::add}, large_3},
                    LargeCase{{2, false, 128, 128, 129, 256, {40}, Finish::gelu}, large_2}));

}  // namespace
}  // namespace leq::LEQ_GPU
