#include "quantize/methods/method.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "case_names.h"
#include "errors.h"
#include "naive_half.h"
#include "synthetic_site.h"
#include "tensor/pack.h"

namespace leq {
namespace {

using namespace test;

constexpr std::int64_t kFitColumns = 256;

const char* const kIntegers[] = {"int8",      "int8-tensor", "int8-g32",  "int4-g32",
                                 "int4-g128", "int3-g64",    "int2-g32",  "uint8",
                                 "uint8-g64", "uint4-g128",  "uint3-g32", "uint2-g64"};

std::string_view plain_method(const MethodInput& input) {
  return input.scheme.kind == CodeKind::uint_ ? "zeropoint" : "absmax";
}

class PlainRanges : public testing::TestWithParam<const char*> {
 protected:
  MethodInput input(const std::vector<float>& weight) const {
    return method_input(weight, kFitColumns, GetParam());
  }
  ChosenCodes choose(const std::vector<float>& weight) const {
    const MethodInput in = input(weight);
    return require_method(plain_method(in)).choose(in).codes;
  }
  std::vector<float> rounded(const std::vector<float>& weight) const {
    return rounded_by(plain_method(input(weight)), input(weight));
  }
  // Returns the number of columns per scale.
  std::int64_t group() const {
    const QuantScheme scheme = *parse_scheme(GetParam());
    return scheme.scaling == Scaling::group ? scheme.group : kFitColumns;
  }
};

TEST_P(PlainRanges, ErrorsAreAtMostHalfAStep) {
  const auto weight = heavy_tailed(1, 16 * kFitColumns);
  const ChosenCodes chosen = choose(weight);
  const auto found = values_of(input(weight), chosen);
  const QuantScheme scheme = *parse_scheme(GetParam());
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const auto at = i / static_cast<std::size_t>(group());
    const double step = std::fabs(static_cast<double>(chosen.scales[at]));
    const double off = std::fabs(static_cast<double>(weight[i]) - static_cast<double>(found[i]));
    // Signed scales clip the end opposite to the largest value by up to one step; a scale stored in
    // f16 is off by 2^-11 of the range; a rounded zero point may clip half a step more.
    const bool cuts =
        (scheme.kind == CodeKind::int_ && scheme.bits < 8) || scheme.kind == CodeKind::uint_;
    const double range = std::pow(2.0, scheme.bits);
    const int code = chosen.codes[i];
    const CodeLimits limits = code_limits(scheme);
    const bool at_end = code == limits.low || code == limits.high;
    const double bound = (at_end && cuts ? 1.0 : 0.5) + (at_end ? range * 0x1p-11 : 0) + 1e-4;
    ASSERT_LE(off, bound * step) << i;
  }
}

TEST_P(PlainRanges, ScaleWithAPowerOfTwo) {
  const auto weight = heavy_tailed(3, 8 * kFitColumns);
  auto larger = weight;
  for (float& value : larger) value *= 64;
  const ChosenCodes one = choose(weight), other = choose(larger);
  EXPECT_EQ(one.codes, other.codes);
  EXPECT_EQ(one.zeros, other.zeros);
  for (std::size_t i = 0; i < one.scales.size(); ++i) {
    ASSERT_EQ(one.scales[i] * 64, other.scales[i]);
  }
}

TEST_P(PlainRanges, ZerosStayZeroAndScalesFinite) {
  auto weight = normals(4, 4 * kFitColumns);
  std::fill_n(weight.begin() + kFitColumns, kFitColumns, 0.0f);  // a row of zeros
  std::fill_n(weight.begin() + 2 * kFitColumns, 32, 1e-14f);     // a group too small for a scale
  weight[5] = 0;
  const auto found = rounded(weight);
  EXPECT_EQ(found[5], 0.0f);
  for (std::size_t i = 0; i < kFitColumns; ++i) ASSERT_EQ(found[kFitColumns + i], 0.0f);
  for (const float scale : choose(weight).scales) ASSERT_TRUE(std::isfinite(scale) && scale != 0);
  const auto nothing = rounded(std::vector<float>(4 * kFitColumns));
  for (const float value : nothing) ASSERT_EQ(value, 0.0f);
}

TEST_P(PlainRanges, ConstantGroupsOfOneSideStayNearTheirValue) {
  for (const float sign : {-1.0f, 1.0f}) {
    const auto found = rounded(std::vector<float>(2 * kFitColumns, 0.75f * sign));
    for (const float value : found) ASSERT_NEAR(value, 0.75f * sign, 0.75f * 0x1p-10f);
  }
}

TEST_P(PlainRanges, GroupScalesAreWhatTheFileHolds) {
  const ChosenCodes chosen = choose(heavy_tailed(5, 8 * kFitColumns));
  if (parse_scheme(GetParam())->scaling != Scaling::group) {
    EXPECT_EQ(chosen.scale_mul, 1.0f);
    return;
  }
  int exponent = 0;
  EXPECT_EQ(std::frexp(chosen.scale_mul, &exponent), 0.5f);
  for (const float scale : chosen.scales) {
    const double plain = static_cast<double>(scale) / static_cast<double>(chosen.scale_mul);
    ASSERT_EQ(nearest_f16(plain), plain);
  }
}

TEST_P(PlainRanges, TheSameForAnyNumberOfThreads) {
  const auto weight = heavy_tailed(6, 33 * kFitColumns);
  const ChosenCodes alone = choose(weight);
  ThreadPool pool(4);
  MethodInput in = input(weight);
  in.pool = &pool;
  const ChosenCodes together = require_method(plain_method(in)).choose(in).codes;
  EXPECT_EQ(alone.codes, together.codes);
  EXPECT_EQ(alone.scales, together.scales);
  EXPECT_EQ(alone.zeros, together.zeros);
}

TEST_P(PlainRanges, RefusesWhatIsNotFinite) {
  auto weight = normals(7, 2 * kFitColumns);
  weight[kFitColumns + 3] = std::numeric_limits<float>::quiet_NaN();
  test::expect_error([&] { choose(weight); }, {"row 1, column 3"});
}

INSTANTIATE_TEST_SUITE_P(Schemes, PlainRanges, testing::ValuesIn(kIntegers), test::named_by_text);

TEST(Absmax, TurnsItsCodesWithTheSign) {
  const auto weight = heavy_tailed(10, 8 * kFitColumns);
  auto turned = weight;
  for (float& value : turned) value = -value;
  for (const char* scheme : {"int8", "int8-g64"}) {
    const auto codes =
        require_method("absmax").choose(method_input(weight, kFitColumns, scheme)).codes;
    auto other = require_method("absmax").choose(method_input(turned, kFitColumns, scheme)).codes;
    for (auto& code : other.codes) code = static_cast<std::int16_t>(-code);
    EXPECT_EQ(codes.codes, other.codes);
  }
  const auto four = require_method("absmax").choose(method_input(weight, kFitColumns, "int4-g32"));
  const auto rotated_four =
      require_method("absmax").choose(method_input(turned, kFitColumns, "int4-g32"));
  EXPECT_EQ(four.codes.codes, rotated_four.codes.codes);  // the scale carries the sign
}

// (With a zero point, the range of rounded weights can be smaller than that of the weights.)
TEST(Absmax, RoundingRoundedWeightsChangesNothing) {
  const auto weight = heavy_tailed(2, 16 * kFitColumns);
  for (const char* scheme :
       {"int8", "int8-tensor", "int8-g32", "int4-g128", "int3-g64", "int2-g32"}) {
    const MethodInput input = method_input(weight, kFitColumns, scheme);
    const ChosenCodes once = require_method("absmax").choose(input).codes;
    const auto values = values_of(input, once);
    const auto twice =
        require_method("absmax").choose(method_input(values, kFitColumns, scheme)).codes;
    EXPECT_EQ(once.codes, twice.codes) << scheme;
  }
}

TEST(Absmax, ARowOfItsOwnIsNeverWorseThanATensorsScale) {
  auto weight = heavy_tailed(11, 32 * kFitColumns);
  for (std::size_t i = 0; i < kFitColumns; ++i) weight[i] *= 20;
  EXPECT_LE(relative_error(weight, rounded_by("absmax", method_input(weight, kFitColumns, "int8"))),
            relative_error(weight,
                           rounded_by("absmax", method_input(weight, kFitColumns, "int8-tensor"))));
}

TEST(Absmax, StoresWhatPackWeightStores) {
  const auto weight = heavy_tailed(12, 70 * kFitColumns);
  for (const char* scheme : {"int8", "int8-tensor", "int8-g32", "int4-g64"}) {
    const MethodInput input = method_input(weight, kFitColumns, scheme);
    const auto found = rounded_by("absmax", input);
    const PackedWeight packed =
        pack_weight(weight, input.rows, kFitColumns, input.scheme, ActKind::none, "w");
    std::vector<float> row(kFitColumns);
    for (std::int64_t r = 0; r < input.rows; ++r) {
      unpack_row(packed.view(), r, row);
      for (std::int64_t k = 0; k < kFitColumns; ++k) {
        ASSERT_EQ(found[static_cast<std::size_t>(r * kFitColumns + k)],
                  row[static_cast<std::size_t>(k)])
            << scheme;
      }
    }
  }
}

TEST(Zeropoint, HoldsGroupsFarFromZero) {
  Random random(13);
  std::vector<float> weight(4 * kFitColumns);
  for (float& value : weight) value = 0.5f + 0.5f * random.uniform();
  const auto found = rounded_by("zeropoint", method_input(weight, kFitColumns, "uint4-g32"));
  for (std::size_t i = 0; i < weight.size(); ++i) {
    ASSERT_NEAR(found[i], weight[i], 1.0f / 30 * 1.01f);
  }
}

TEST(Zeropoint, IntegerSumsWithZeroPointsAreTheFloatProduct) {
  const auto weight = heavy_tailed(14, kFitColumns);
  const MethodInput input = method_input(weight, kFitColumns, "uint8");
  const ChosenCodes w = require_method("zeropoint").choose(input).codes;
  const auto x_values = normals(15, kFitColumns);
  const ChosenCodes x =
      require_method("zeropoint").choose(method_input(x_values, kFitColumns, "uint8")).codes;
  std::int64_t products = 0, sum_w = 0, sum_x = 0;
  for (std::size_t k = 0; k < kFitColumns; ++k) {
    products += std::int64_t{w.codes[k]} * x.codes[k];
    sum_w += w.codes[k];
    sum_x += x.codes[k];
  }
  const std::int64_t zw = w.zeros[0], zx = x.zeros[0];
  const double integer =
      static_cast<double>(products - zx * sum_w - zw * sum_x + kFitColumns * zx * zw) *
      static_cast<double>(w.scales[0]) * static_cast<double>(x.scales[0]);
  const auto wf = values_of(input, w), xf = values_of(input, x);
  double real = 0, size = 0;
  for (std::size_t k = 0; k < kFitColumns; ++k) {
    const double product = static_cast<double>(wf[k]) * static_cast<double>(xf[k]);
    real += product;
    size += std::fabs(product);
  }
  EXPECT_NEAR(integer, real, 1e-6 * size);
}

}  // namespace
}  // namespace leq
