// Matmuls of f32 inputs on tensor cores, on the emulator: near to double for 16-bit floats and
// codes of every kind, and the same bits for every tile, number of tokens and order of threads.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "cuda/kernels/matmul/float_matmul.h"
#include "cuda/sim/emulator.h"
#include "float_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

struct PieceCase {
  std::optional<FloatType> type;  // none: codes
  IntCase shape;
};

void PrintTo(const PieceCase& c, std::ostream* out) {
  if (c.type) *out << (*c.type == FloatType::f16 ? "f16 of " : "bf16 of ");
  PrintTo(c.shape, out);
}

void launch(const FloatMatmul& a, FloatType type, std::optional<FloatTile> tile) {
  if (!tile) return launch_float_matmul(a, test_stream());
  (type == FloatType::f16 ? launch_float_gemm_f16 : launch_float_gemm_bf16)(a, *tile,
                                                                            test_stream());
}
void launch(const WeightOnlyMatmul& a, int bits, std::optional<FloatTile> tile) {
  if (!tile) return launch_weight_only_matmul(a, test_stream());
  (bits == 8   ? launch_float_gemm_8
   : bits == 4 ? launch_float_gemm_4
   : bits == 3 ? launch_float_gemm_3
               : launch_float_gemm_2)(a, *tile, test_stream());
}

// Weights of either kind, and what comes out of them.
class Problem {
 public:
  explicit Problem(const PieceCase& c) : c_(c), codes_(c.shape) {
    for (const int rows : c.shape.rows) {
      if (c.type) floats_.emplace_back(*c.type, rows, c.shape.columns);
    }
  }

  int pieces() const { return c_.type == FloatType::bf16 ? 3 : 2; }
  std::int64_t stride() const { return float_stride(c_.shape.outputs()); }
  float before() const { return 0.25f; }
  double weight(std::size_t segment, int row, int k) const {
    if (!c_.type) return codes_.weight(segment, row, k);
    const FloatData& w = floats_[segment];
    return w.numbers[static_cast<std::size_t>(row * w.stride + k)];
  }
  double bias(std::size_t segment, int row) const {
    return c_.type ? floats_[segment].bias[static_cast<std::size_t>(row)]
                   : codes_.bias(segment, row);
  }

  // Rows first ... first + tokens - 1 of x alone: [tokens][stride]. No tile: as the backend does.
  std::vector<float> run(Inputs& x, int first, int tokens, std::optional<FloatTile> tile) const {
    const DeviceArray<float> out(
        std::vector<float>(static_cast<std::size_t>(tokens * stride()), before()));
    const auto set = [&](auto& a) {
      a.tokens = tokens;
      a.columns = c_.shape.columns;
      a.x = x.pieces(pieces(), first, tokens);
      a.finish = c_.shape.finish;
      a.out = {out.data(), stride()};
    };
    if (c_.type) {
      FloatMatmul a;
      for (const FloatData& w : floats_) a.segments[a.segment_count++] = w.segment();
      set(a);
      launch(a, *c_.type, tile);
    } else {
      WeightOnlyMatmul a;
      for (std::size_t i = 0; i < c_.shape.rows.size(); ++i) {
        a.segments[a.segment_count++] = codes_.segment(i);
      }
      set(a);
      launch(a, c_.shape.bits, tile);
    }
    return out.host();
  }
  std::vector<float> run(Inputs& x) const { return run(x, 0, x.tokens(), {}); }

 private:
  PieceCase c_;
  IntMatmulData codes_;
  std::vector<FloatData> floats_;
};

// y before its finish, and how far off it may be.
struct Near {
  double y, error;
};

// f32 sums of products whose inputs are off by 2^-23 of themselves or 2^-39 of the row's largest.
Near near_sum(const Problem& problem, const Inputs& x, int columns, int token, std::size_t segment,
              int row) {
  constexpr double kOfProducts = 2e-6, kOfLargest = 0x1p-39, kSubnormal = 0x1p-147;
  Near near = {0, 0};
  double weights = 0;
  for (int k = 0; k < columns; ++k) {
    const double w = problem.weight(segment, row, k), product = w * x.at(token, k);
    near.y += product;
    near.error += std::abs(product) * kOfProducts;
    weights += std::abs(w);
  }
  near.error += weights * x.largest(token) * kOfLargest + kSubnormal;
  near.y += problem.bias(segment, row);
  near.error += std::abs(near.y) * 0x1p-23;
  return near;
}

double silu_of(double x) { return x / (1 + std::exp(-x)); }

// Behind the finish. Slopes of silu and gelu are at most 1.13.
Near finished(Finish finish, const Near& y, const Near& up, double before) {
  constexpr double kSlope = 1.13, kRounding = 1e-6;
  switch (finish) {
    case Finish::add:
      return {before + y.y, y.error + kRounding * std::abs(before + y.y)};
    case Finish::gelu: {
      const double value = gelu_new(static_cast<float>(y.y));
      return {value, y.error * kSlope + kRounding * std::abs(y.y)};
    }
    case Finish::swiglu: {
      const double gate = silu_of(y.y);
      return {gate * up.y,
              (y.error * kSlope + kRounding * std::abs(y.y)) * (std::abs(up.y) + up.error) +
                  std::abs(gate) * up.error};
    }
    default:
      return y;
  }
}

void expect_near(const PieceCase& c, const Problem& problem, const Inputs& x,
                 const std::vector<float>& found) {
  const bool paired = c.shape.finish == Finish::swiglu;
  for (int t = 0; t < x.tokens(); ++t) {
    std::int64_t at = t * problem.stride();
    for (std::size_t s = 0; s < (paired ? 1 : c.shape.rows.size()); ++s) {
      for (int row = 0; row < c.shape.rows[s]; ++row, ++at) {
        const auto sum = [&](std::size_t segment) {
          return near_sum(problem, x, c.shape.columns, t, segment, row);
        };
        const Near want =
            finished(c.shape.finish, sum(s), paired ? sum(1) : Near{0, 0}, problem.before());
        ASSERT_NEAR(found[static_cast<std::size_t>(at)], want.y, want.error)
            << "token " << t << ", segment " << s << ", row " << row;
      }
    }
    // Columns after the last are not written.
    for (; at < (t + 1) * problem.stride(); ++at) {
      ASSERT_EQ(found[static_cast<std::size_t>(at)], problem.before());
    }
  }
}

class FloatGemmTest : public testing::TestWithParam<PieceCase> {
 protected:
  FloatGemmTest() { simt::schedule() = {4, simt::CopyLands::at_wait}; }
  ~FloatGemmTest() override { simt::schedule() = {}; }
};

TEST_P(FloatGemmTest, AgreesWithSumsInDouble) {
  const Problem problem(GetParam());
  Inputs x(GetParam().shape.tokens, GetParam().shape.columns);
  expect_near(GetParam(), problem, x, problem.run(x));
}

// Every tile under every order of threads, and every way to cut the tokens.
TEST_P(FloatGemmTest, BitsDependOnTheTokenAlone) {
  const IntCase& c = GetParam().shape;
  const Problem problem(GetParam());
  Inputs x(c.tokens, c.columns);
  const auto whole = problem.run(x);
  for (const FloatTile tile : {FloatTile::few, FloatTile::middle, FloatTile::large}) {
    for (const auto lands : {simt::CopyLands::at_wait, simt::CopyLands::at_issue}) {
      simt::schedule() = {7, lands};
      EXPECT_EQ(problem.run(x, 0, c.tokens, tile), whole) << "tile " << static_cast<int>(tile);
    }
  }
  for (const int step : {1, 3, 17}) {
    if (step >= c.tokens) break;
    for (int first = 0; first < c.tokens; first += step * 2) {  // every second piece is enough
      const int count = std::min(step, c.tokens - first);
      const auto part = problem.run(x, first, count, {});
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + first * problem.stride(),
                            part.size() * sizeof(float)),
                0)
          << count << " tokens from " << first;
    }
  }
}

PieceCase f16(IntCase shape) { return {FloatType::f16, std::move(shape)}; }
PieceCase bf16(IntCase shape) { return {FloatType::bf16, std::move(shape)}; }
PieceCase codes(IntCase shape) { return {std::nullopt, std::move(shape)}; }

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

// Rows that one scale must serve: an outlier beside small numbers, zeros, subnormals, the largest.
Inputs odd_inputs(int columns) {
  auto numbers = Inputs::normal_numbers(6 * columns);
  const auto row = [&](int t) { return numbers.begin() + t * columns; };
  for (int k = 0; k < columns; ++k) {
    row(0)[k] *= 1e-3f;
    row(1)[k] = 0;
    row(2)[k] *= 1e-40f;
    row(3)[k] *= 1e37f;
    row(4)[k] *= 1e-30f;
    row(5)[k] = k % 2 == 0 ? -1.0f : std::ldexp(1.0f, -k % 60);
  }
  row(0)[5] = 1e6f;
  return {std::move(numbers), 6, columns};
}

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

// A number from its pieces, at the places that launch.h names.
TEST(Pieces, MakeTheirNumbersAndPadsAreZero) {
  constexpr int kColumns = 300, kPadded = 384;
  Inputs x = odd_inputs(kColumns);
  for (const int count : {2, 3}) {
    x.pieces(count);
    const auto cut = x.cut();
    const auto scales = x.scales();
    for (int t = 0; t < 6; ++t) {
      const double scale = double{scales[static_cast<std::size_t>(t * 2)]} *
                           scales[static_cast<std::size_t>(t * 2 + 1)];
      for (int k = 0; k < kPadded; ++k) {
        const int place = k % 16 / 4 * 8 + k % 32 / 16 * 4 + k % 4;
        double sum = 0;
        for (int piece = 0; piece < count; ++piece) {
          const int at = ((t * kPadded / 32 + k / 32) * count + piece) * 32 + place;
          const std::uint16_t half = cut[static_cast<std::size_t>(at)];
          sum += count == 2 ? f16_to_f32(half) : bf16_to_f32(half);
        }
        const double want = k < kColumns ? x.at(t, k) : 0.0;
        const double error =
            std::max(std::abs(want) * 0x1p-23, count == 2 ? x.largest(t) * 0x1p-39 : 0.0);
        ASSERT_NEAR(sum * scale, want, error) << count << " pieces, row " << t << ", column " << k;
      }
    }
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
