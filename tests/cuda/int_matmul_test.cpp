// Integer matmuls on the emulator: floats are bit-identical to the formulas of docs/numerics.md for
// several schedules of lanes, warps, blocks and asynchronous copies.
#include "int_matmul_case.h"

#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/sim/emulator.h"

namespace leq::LEQ_GPU {
namespace {

class IntMatmulTest : public testing::TestWithParam<IntCase> {
 protected:
  ~IntMatmulTest() override { simt::schedule() = {}; }
};

TEST_P(IntMatmulTest, ValuesFollowTheFormula) {
  for (const simt::Schedule& schedule : {simt::Schedule{3, simt::CopyArrival::at_wait},
                                         simt::Schedule{5, simt::CopyArrival::at_issue}}) {
    simt::schedule() = schedule;
    expect_values(GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(
    FewTokens, IntMatmulTest,
    testing::Values(
        IntCase{8, false, 0, 0, 1, 384, {70}}, IntCase{8, false, 0, 0, 2, 100, {64, 30, 17}},
        IntCase{8, false, 0, 0, 5, 1024, {40, 40}, Finish::swiglu},
        IntCase{8, false, 0, 0, 5, 1024, {40, 40}, Finish::geglu},
        IntCase{8, false, 0, 0, 5, 1024, {40, 40}, Finish::clamped_swiglu},
        IntCase{8, false, 0, 0, 5, 1024, {40}, Finish::silu},
        IntCase{8, false, 0, 128, 3, 1000, {50}, Finish::add},
        IntCase{8, false, 128, 128, 8, 640, {33}, Finish::gelu},
        IntCase{8, false, 32, 0, 1, 384, {40}}, IntCase{8, true, 0, 0, 4, 300, {40}},
        IntCase{8, true, 64, 128, 7, 512, {40}}, IntCase{8, true, 0, 128, 1, 512, {40}},
        IntCase{4, false, 128, 128, 1, 1024, {70}},
        IntCase{4, false, 128, 0, 4, 640, {41, 41}, Finish::swiglu},
        IntCase{4, true, 32, 128, 2, 300, {40, 24, 8}}, IntCase{3, false, 128, 0, 1, 1024, {40}},
        IntCase{3, true, 64, 128, 3, 640, {40}}, IntCase{2, false, 128, 128, 1, 2048, {100}},
        IntCase{2, true, 32, 0, 4, 5200, {40}, Finish::gelu},
        IntCase{8, false, 0, 128, 2, 17000, {20}}, IntCase{4, true, 64, 128, 3, 9000, {20}},
        IntCase{3, true, 128, 128, 2, 640, {40}}, IntCase{2, true, 64, 0, 2, 640, {40}}));

// Groups of 128 columns have their own kernels.
INSTANTIATE_TEST_SUITE_P(
    FewTokensInGroups, IntMatmulTest,
    testing::Values(
        IntCase{4, false, 128, 128, 2, 1000, {40, 24}}, IntCase{3, false, 128, 0, 3, 640, {40}},
        IntCase{2, false, 128, 128, 2, 640, {40}}, IntCase{2, true, 128, 0, 3, 33000, {20}},
        IntCase{8, true, 128, 128, 4, 1000, {30, 30}, Finish::swiglu},
        IntCase{2, true, 64, 0, 1, 640, {40}}, IntCase{3, true, 32, 128, 1, 640, {40}},
        IntCase{3, false, 64, 0, 2, 640, {40}}, IntCase{4, false, 64, 128, 1, 640, {40}},
        IntCase{8, true, 32, 128, 2, 512, {40}}, IntCase{8, false, 64, 0, 4, 512, {40}}));

// Two to eight tokens with groups of 128: every code width and finish; groups of weights, of inputs
// or of both; one group, as many as the kernel's queue holds, more; rows that end within a block.
INSTANTIATE_TEST_SUITE_P(
    TokensInGroups, IntMatmulTest,
    testing::Values(IntCase{8, false, 128, 0, 2, 128, {40}},
                    IntCase{8, false, 128, 128, 6, 33 * 128, {70, 9}},
                    IntCase{8, true, 0, 128, 8, 1000, {23, 23}, Finish::swiglu},
                    IntCase{8, true, 128, 0, 7, 32 * 128, {20}, Finish::add},
                    IntCase{4, false, 128, 128, 8, 1000, {25, 25}, Finish::swiglu},
                    IntCase{4, true, 128, 0, 7, 66 * 128 - 5, {24, 7, 16}},
                    IntCase{4, true, 128, 128, 5, 100, {17}, Finish::gelu},
                    IntCase{3, false, 128, 128, 6, 640, {40}, Finish::add},
                    IntCase{3, true, 128, 0, 8, 5000, {9, 9}, Finish::swiglu},
                    IntCase{2, false, 128, 0, 5, 640, {40}, Finish::gelu},
                    IntCase{2, true, 128, 128, 8, 4300, {33, 16}}));

// Nine to sixteen tokens: a side of eight and what is left of another.
INSTANTIATE_TEST_SUITE_P(
    TwoSides, IntMatmulTest,
    testing::Values(IntCase{8, true, 128, 128, 9, 17 * 128, {40}, Finish::add},
                    IntCase{8, false, 0, 128, 16, 1000, {23, 23}, Finish::swiglu},
                    IntCase{4, false, 128, 128, 16, 1000, {25, 25}, Finish::swiglu},
                    IntCase{4, true, 128, 0, 11, 33 * 128 - 5, {24, 7, 16}},
                    IntCase{3, false, 128, 128, 9, 640, {40}, Finish::add},
                    IntCase{3, true, 128, 0, 15, 5000, {9, 9}, Finish::swiglu},
                    IntCase{2, false, 128, 0, 12, 640, {40}, Finish::gelu},
                    IntCase{2, true, 128, 128, 16, 4300, {33, 16}}));

// For one token, the kernel processes two groups at a time: tests odd numbers of groups, one group,
// as many as the kernel's queue holds (256), and one more.
INSTANTIATE_TEST_SUITE_P(PairsOfGroups, IntMatmulTest,
                         testing::Values(IntCase{8, false, 0, 128, 1, 384, {40}},
                                         IntCase{8, true, 128, 128, 1, 640, {40}},
                                         IntCase{
                                             4, true, 128, 128, 1, 2200, {40, 40}, Finish::swiglu},
                                         IntCase{3, true, 128, 0, 1, 300, {40}},
                                         IntCase{2, false, 128, 128, 1, 300, {40}},
                                         IntCase{8, false, 128, 128, 1, 100, {40}},
                                         IntCase{4, false, 128, 0, 1, 128, {40}},
                                         IntCase{4, true, 128, 128, 1, 257 * 128, {20}},
                                         IntCase{8, false, 0, 128, 1, 256 * 128 - 5, {20}}));

// Tests every tile, with partial tiles in tokens, rows and columns.
INSTANTIATE_TEST_SUITE_P(
    ManyTokens, IntMatmulTest,
    testing::Values(
        IntCase{8, false, 0, 0, 9, 384, {70}}, IntCase{8, false, 0, 0, 16, 1000, {64, 30, 17}},
        IntCase{8, false, 0, 0, 70, 300, {40, 40}, Finish::swiglu},
        IntCase{8, false, 0, 0, 70, 300, {40, 40}, Finish::geglu},
        IntCase{8, false, 0, 0, 70, 300, {40, 40}, Finish::clamped_swiglu},
        IntCase{8, false, 0, 128, 13, 1000, {50}, Finish::add},
        IntCase{8, false, 128, 128, 65, 640, {33}, Finish::gelu},
        IntCase{8, false, 16, 0, 11, 384, {40}},
        IntCase{8, false, 16, 128, 70, 300, {40, 40}, Finish::swiglu},
        IntCase{8, false, 32, 0, 11, 384, {40}}, IntCase{8, true, 0, 0, 20, 300, {40}},
        IntCase{8, true, 64, 128, 17, 512, {40}}, IntCase{8, true, 0, 128, 9, 512, {40}},
        IntCase{4, false, 128, 128, 5, 1024, {70}},
        IntCase{4, false, 128, 0, 33, 640, {41, 41}, Finish::swiglu},
        IntCase{4, true, 32, 128, 70, 300, {40, 24, 8}}, IntCase{3, false, 128, 0, 6, 1024, {40}},
        IntCase{3, true, 64, 128, 66, 640, {40}}, IntCase{2, false, 128, 128, 16, 2048, {100}},
        IntCase{2, true, 32, 0, 17, 520, {40}, Finish::gelu},
        IntCase{4, true, 64, 0, 17, 300, {40}}, IntCase{3, true, 32, 128, 17, 300, {40}},
        IntCase{3, false, 128, 0, 20, 300, {40}}, IntCase{2, true, 64, 0, 18, 300, {40}},
        IntCase{2, false, 128, 128, 19, 300, {40}}));

// Codes with a table: groups of 32 and 16 columns, one token and many, several segments, a gate.
INSTANTIATE_TEST_SUITE_P(Tables, IntMatmulTest, testing::ValuesIn([] {
                           std::vector<IntCase> cases = {
                               {4, false, 32, 128, 1, 2100, {70, 9}},
                               {4, false, 16, 128, 1, 2100, {40}},
                               {4, false, 32, 0, 1, 300, {40, 40}, Finish::swiglu},
                               {4, false, 16, 32, 1, 1000, {40}, Finish::add},
                               {4, false, 32, 128, 70, 300, {40, 24, 8}},
                               {4, false, 16, 128, 33, 640, {41, 41}, Finish::swiglu},
                               {4, false, 32, 32, 2, 520, {40}},
                               {4, false, 16, 0, 18, 300, {40}}};
                           for (IntCase& one : cases) one.has_table = true;
                           return cases;
                         }()));

// Runs one tile of the tensor-core kernels, regardless of the matmul's size.
struct TileCase {
  IntCase matmul;
  GemmTile tile;

  friend void PrintTo(const TileCase& c, std::ostream* out) {
    PrintTo(c.matmul, out);
    *out << ", tile " << static_cast<int>(c.tile);
  }
};

IntMatmulData::Launch launch_of(const TileCase& c) {
  return
      [tile = c.tile](const IntMatmul& a, rt::Stream& stream) { launch_int_gemm(a, tile, stream); };
}

class TileTest : public testing::TestWithParam<TileCase> {
 protected:
  ~TileTest() override { simt::schedule() = {}; }
};

TEST_P(TileTest, ValuesFollowTheFormula) {
  const TileCase& c = GetParam();
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{6, simt::CopyArrival::at_issue}}) {
    simt::schedule() = schedule;
    expect_values(c.matmul, launch_of(c));
  }
}

// For so few outputs the backend would select GemmTile::few, so other tiles are named here.
INSTANTIATE_TEST_SUITE_P(
    Many, TileTest,
    testing::Values(TileCase{{8, false, 0, 0, 16, 1000, {64, 30, 17}}, GemmTile::small},
                    TileCase{{8, true, 0, 128, 9, 512, {40}}, GemmTile::small},
                    TileCase{{4, false, 128, 128, 5, 1024, {70}}, GemmTile::small},
                    TileCase{{3, true, 128, 0, 6, 640, {40, 40}, Finish::swiglu}, GemmTile::small},
                    TileCase{{2, false, 128, 128, 16, 640, {100}}, GemmTile::small},
                    TileCase{{8, true, 0, 0, 40, 300, {40}}, GemmTile::middle},
                    TileCase{{8, true, 128, 128, 40, 300, {70}}, GemmTile::middle},
                    TileCase{{4, true, 128, 128, 33, 640, {41, 41}, Finish::swiglu},
                             GemmTile::middle},
                    TileCase{{3, false, 128, 0, 20, 300, {40}}, GemmTile::middle},
                    TileCase{{2, true, 128, 128, 19, 300, {40}, Finish::add}, GemmTile::middle}));

// Tests the kernel for few outputs with tiles of 16 and of 32 tokens, and with numbers of K tiles
// that are less than, or no multiple of, its four warps.
INSTANTIATE_TEST_SUITE_P(
    Few, TileTest,
    testing::Values(TileCase{{8, false, 0, 0, 16, 1000, {64, 30, 17}}, GemmTile::few},
                    TileCase{{8, true, 0, 0, 40, 300, {40}, Finish::add}, GemmTile::few},
                    TileCase{{8, true, 0, 128, 5, 128, {25, 25}, Finish::swiglu}, GemmTile::few},
                    TileCase{{8, false, 128, 128, 64, 1400, {33}, Finish::gelu}, GemmTile::few},
                    TileCase{{4, true, 128, 128, 33, 2200, {41, 41}, Finish::swiglu},
                             GemmTile::few},
                    TileCase{{4, false, 128, 0, 11, 640, {40, 24, 8}}, GemmTile::few},
                    TileCase{{3, true, 128, 128, 6, 1300, {40}}, GemmTile::few},
                    TileCase{{3, false, 128, 0, 31, 512, {20}, Finish::add}, GemmTile::few},
                    TileCase{{2, true, 128, 128, 17, 640, {40}}, GemmTile::few},
                    TileCase{{2, false, 128, 0, 16, 384, {17}}, GemmTile::few}));

// The backend uses the large tile for large matmuls only. The first case is for sanitizers.
INSTANTIATE_TEST_SUITE_P(Small, TileTest,
                         testing::Values(TileCase{
                             {8, false, 0, 0, 20, 200, {70, 70}, Finish::swiglu},
                             GemmTile::large}));
INSTANTIATE_TEST_SUITE_P(
    Tails, TileTest,
    testing::Values(TileCase{{8, false, 0, 0, 130, 640, {70, 130}}, GemmTile::large},
                    TileCase{{8, false, 0, 128, 100, 500, {129}}, GemmTile::large},
                    TileCase{{4, true, 128, 128, 64, 384, {65, 65}, Finish::swiglu},
                             GemmTile::large},
                    TileCase{{3, true, 128, 0, 33, 512, {127}, Finish::add}, GemmTile::large},
                    TileCase{{2, false, 128, 128, 129, 256, {40}, Finish::gelu}, GemmTile::large}));

// With 28,672 columns of the largest codes, sums of up to 127 * 127 * 28,672 do not overflow. Tests
// every number of bits in the dot-product kernels, then in every tile.
constexpr int kMaxColumns = 28672;

IntCase extreme(int bits, bool is_uint, int weight_group, int tokens, int rows) {
  return {bits, is_uint, weight_group, 0, tokens, kMaxColumns, {rows}, Finish::store, true};
}

class ExtremeGemvTest : public testing::TestWithParam<IntCase> {};
TEST_P(ExtremeGemvTest, SumsAreExact) { expect_values(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Bits, ExtremeGemvTest,
                         testing::Values(extreme(8, false, 0, 1, 16), extreme(8, false, 0, 4, 8),
                                         extreme(8, true, 0, 2, 16), extreme(8, true, 128, 1, 16),
                                         extreme(8, true, 128, 5, 16),
                                         extreme(8, false, 128, 8, 16),
                                         extreme(4, true, 128, 8, 16),
                                         extreme(4, false, 128, 2, 16),
                                         extreme(4, true, 128, 1, 16), extreme(3, true, 128, 2, 16),
                                         extreme(2, true, 128, 2, 16)));

class ExtremeTileTest : public testing::TestWithParam<TileCase> {};
TEST_P(ExtremeTileTest, SumsAreExact) {
  const TileCase& c = GetParam();
  expect_values(c.matmul, launch_of(c));
}

std::vector<TileCase> extreme_tiles() {
  std::vector<TileCase> cases;
  for (const GemmTile tile : {GemmTile::few, GemmTile::small, GemmTile::middle, GemmTile::large}) {
    cases.push_back({extreme(8, false, 0, 3, 9), tile});
    for (const int bits : {8, 4, 3, 2}) cases.push_back({extreme(bits, true, 128, 2, 9), tile});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Tiles, ExtremeTileTest, testing::ValuesIn(extreme_tiles()));

}  // namespace
}  // namespace leq::LEQ_GPU
