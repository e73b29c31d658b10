// Codes with a table (mxfp4, iq4_nl) as chosen by rtn, gptq and gptq+.
#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "quantize/linear_algebra/tile_kernels.h"
#include "quantize/methods/method.h"
#include "synthetic_layer.h"
#include "synthetic_site.h"
#include "table_numbers.h"
#include "tensor/pack.h"

namespace leq {
namespace {

using namespace test;

constexpr const char* kTableTypes[] = {"mxfp4", "iq4_nl"};

// The chosen codes with their numbers in place of the codes.
ChosenCodes with_table_numbers(ChosenCodes chosen, const char* type) {
  for (std::int16_t& code : chosen.codes) {
    code = static_cast<std::int16_t>(table_number(*parse_scheme(type), code));
  }
  return chosen;
}

double table_loss_by(const char* method, const SyntheticLayer& layer, const char* type,
                     const std::vector<double>& hessian) {
  const MethodInput input = input_of(layer, type);
  return proxy_loss(layer, with_table_numbers(require_method(method).choose(input).codes, type),
                    input.scheme, hessian);
}

TEST(TableChoice, FeedbackAndDescentLoseLessOnTokensThatWereNotSeen) {
  const SyntheticLayer layer = synthetic_layer(24, 320, 1600);
  for (const char* type : kTableTypes) {
    const double rtn = table_loss_by("rtn", layer, type, layer.held_out);
    const double gptq = table_loss_by("gptq", layer, type, layer.held_out);
    const double plus = table_loss_by("gptq+", layer, type, layer.held_out);
    EXPECT_LT(gptq, 0.6 * rtn) << type;
    EXPECT_LT(plus, gptq) << type;
  }
}

TEST(TableChoice, Iq4LosesLessThanInt4InTheSameGroups) {
  const SyntheticLayer layer = synthetic_layer(24, 320, 1600);
  const MethodInput plain = input_of(layer, "int4-g32");
  for (const char* method : {"rtn", "gptq+"}) {
    const double evenly_spaced =
        proxy_loss(layer, require_method(method).choose(plain).codes, plain.scheme, layer.held_out);
    EXPECT_LT(table_loss_by(method, layer, "iq4_nl", layer.held_out), 0.9 * evenly_spaced)
        << method;
  }
}

TEST(TableChoice, RtnTakesTheNearestNumberOfEveryWeight) {
  const SyntheticLayer layer = synthetic_layer(5, 300, 300);
  for (const char* type : kTableTypes) {
    const ChosenCodes chosen =
        with_table_numbers(require_method("rtn").choose(input_of(layer, type)).codes, type);
    EXPECT_EQ(chosen.scale_mul, 1.0f);
    for (std::int64_t i = 0; i < 5 * 300; ++i) {
      const float scale = chosen.scales[static_cast<std::size_t>(i / 300 * 10 + i % 300 / 32)];
      ASSERT_EQ(scale, f16_to_f32(f32_to_f16(scale)));
      const double want = layer.weight[static_cast<std::size_t>(i)];
      const double found =
          std::fabs(double{scale} * chosen.codes[static_cast<std::size_t>(i)] - want);
      for (int code = 0; code < 16; ++code) {
        const double other = double{scale} * table_number(*parse_scheme(type), code) - want;
        ASSERT_LE(found, std::fabs(other) + 1e-6) << type << " weight " << i;
      }
    }
  }
}

TEST(TableChoice, AGroupOfZerosIsZero) {
  SyntheticLayer layer = synthetic_layer(4, 96, 300);
  for (std::size_t k = 32; k < 64; ++k) layer.weight[k] = 0;
  for (const char* method : {"rtn", "gptq"}) {
    for (const char* type : kTableTypes) {
      const ChosenCodes chosen =
          with_table_numbers(require_method(method).choose(input_of(layer, type)).codes, type);
      EXPECT_EQ(chosen.scales[1], 0.0f) << method;
      EXPECT_NE(chosen.scales[0], 0.0f);
    }
  }
}

// The kernels of gptq and of its descent on every level, against numbers found by search.
TEST(TableChoice, KernelsRoundAndMoveToTheNearestNumbers) {
  constexpr std::int64_t kLanes = kPanelLanes<float>;
  for (const char* type : kTableTypes) {
    const QuantScheme scheme = *parse_scheme(type);
    const auto nearest = [&](float x) {
      int best = table_number(scheme, 0);
      for (int code = 1; code < 16; ++code) {
        const int number = table_number(scheme, code);
        const float d = std::fabs(static_cast<float>(number) - x);
        const float least = std::fabs(static_cast<float>(best) - x);
        if (d < least || (d == least && number > best)) best = number;
      }
      return best;
    };
    for (const Isa isa : supported_isas()) {
      SCOPED_TRACE(std::string(type) + " on " + std::string(isa_name(isa)));
      Random random(4);
      std::vector<float> x(kLanes), ones(kLanes, 1.0f), zeros(kLanes), differences(kLanes);
      for (float& value : x) value = 60 * random.normal();
      std::vector<std::int16_t> codes(kLanes);
      std::vector<double> losses(kLanes);
      const float factor[kTileRows] = {};
      tile_kernels(isa).round({.targets = x.data(),
                               .factor = factor,
                               .weights = x.data(),
                               .scales = ones.data(),
                               .divisors = ones.data(),
                               .zeros = zeros.data(),
                               .table = code_limits(scheme).table,
                               .pivot = 1,
                               .differences = differences.data(),
                               .codes = codes.data(),
                               .losses = losses.data()});
      std::vector<float> gradients(kLanes), errors(kLanes), changes(kLanes);
      for (float& value : gradients) value = 20 * random.normal();
      std::vector<std::int16_t> moved = codes;
      const std::int64_t moves = tile_kernels(isa).move({.gradients = gradients.data(),
                                                         .factor = factor,
                                                         .scales = ones.data(),
                                                         .divisors = ones.data(),
                                                         .curvature = 2,
                                                         .table = code_limits(scheme).table,
                                                         .codes = moved.data(),
                                                         .errors = errors.data(),
                                                         .changes = changes.data()});
      std::int64_t expected_moves = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(codes[i], nearest(x[i]));
        EXPECT_EQ(differences[i], x[i] - static_cast<float>(codes[i]));
        EXPECT_EQ(moved[i], nearest(static_cast<float>(codes[i]) + gradients[i] / 2));
        EXPECT_EQ(changes[i], static_cast<float>(codes[i] - moved[i]));
        expected_moves += moved[i] != codes[i] ? 1 : 0;
      }
      EXPECT_EQ(moves, expected_moves);
    }
  }
}

}  // namespace
}  // namespace leq
