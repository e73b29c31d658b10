// Tests scales of scales (q4_k, q5_k, q6_k) as chosen by rtn, gptq and gptq+.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "quantize/methods/method.h"
#include "synthetic_layer.h"
#include "synthetic_site.h"
#include "tensor/pack.h"

namespace leq {
namespace {

using namespace test;

constexpr const char* kTypes[] = {"q4_k", "q5_k", "q6_k"};

// Returns the values that a reader of the file computes by docs/leq-format.md, in double.
std::vector<double> super_values(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                                 bool is_6) {
  const std::int64_t supers = (columns + 255) / 256, block = is_6 ? 16 : 32;
  const std::int64_t blocks = (columns + block - 1) / block;
  std::vector<double> values;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const double code = chosen.codes[static_cast<std::size_t>(row * columns + k)];
      const auto super = static_cast<std::size_t>(row * supers + k / 256);
      const auto sub = static_cast<std::size_t>(row * blocks + k / block);
      if (is_6) {
        const auto scale = static_cast<std::int8_t>(chosen.zeros[sub]);
        values.push_back(static_cast<double>(chosen.scales[super]) * scale * (code - 32));
      } else {
        values.push_back(
            static_cast<double>(chosen.scales[2 * super]) * chosen.zeros[2 * sub] * code -
            static_cast<double>(chosen.scales[2 * super + 1]) * chosen.zeros[2 * sub + 1]);
      }
    }
  }
  return values;
}

// Returns the sum of d H d^T over all rows d of W - Q.
double loss_of(const SyntheticLayer& layer, const std::vector<double>& values,
               const std::vector<double>& hessian) {
  const auto columns = static_cast<std::size_t>(layer.columns);
  double loss = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(layer.rows); ++row) {
    std::vector<double> d(columns);
    for (std::size_t k = 0; k < columns; ++k)
      d[k] = static_cast<double>(layer.weight[row * columns + k]) - values[row * columns + k];
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < columns; ++k) sum += hessian[j * columns + k] * d[k];
      loss += d[j] * sum;
    }
  }
  return loss;
}

double loss_by(const char* method, const SyntheticLayer& layer, const char* type,
               const std::vector<double>& hessian) {
  const MethodResult found = require_method(method).choose(input_of(layer, type));
  return loss_of(layer,
                 super_values(found.codes, layer.rows, layer.columns, std::string(type) == "q6_k"),
                 hessian);
}

TEST(SuperChoice, FeedbackAndDescentLoseLessOnTokensThatWereNotSeen) {
  const SyntheticLayer layer = synthetic_layer(24, 320, 1600);
  for (const char* type : kTypes) {
    const double rtn = loss_by("rtn", layer, type, layer.held_out);
    const double gptq = loss_by("gptq", layer, type, layer.held_out);
    const double plus = loss_by("gptq+", layer, type, layer.held_out);
    EXPECT_LT(gptq, 0.6 * rtn) << type;
    EXPECT_LT(plus, gptq) << type;
  }
}

TEST(SuperChoice, FourBitsBeatGroupsOf32WithOneScale) {
  const SyntheticLayer layer = synthetic_layer(24, 320, 1600);
  const MethodInput plain = input_of(layer, "int4-g32");
  const double one_scale =
      proxy_loss(layer, require_method("rtn").choose(plain).codes, plain.scheme, layer.held_out);
  EXPECT_LT(loss_by("rtn", layer, "q4_k", layer.held_out), one_scale);
}

TEST(SuperChoice, RtnTakesTheNearestCodeOfEveryWeight) {
  const SyntheticLayer layer = synthetic_layer(5, 300, 300);
  for (const char* type : kTypes) {
    const bool is_6 = std::string(type) == "q6_k";
    const int most = type[1] == '4' ? 15 : type[1] == '5' ? 31 : 63;
    const ChosenCodes chosen = require_method("rtn").choose(input_of(layer, type)).codes;
    const auto values = super_values(chosen, 5, 300, is_6);
    for (const int step : {-1, 1}) {
      ChosenCodes moved = chosen;
      for (std::int16_t& code : moved.codes)
        code = static_cast<std::int16_t>(std::clamp(code + step, 0, most));
      const auto others = super_values(moved, 5, 300, is_6);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto want = static_cast<double>(layer.weight[i]);
        ASSERT_LE(std::fabs(values[i] - want), std::fabs(others[i] - want) + 1e-6) << type << i;
      }
    }
  }
}

// These ranges use only the largest values, with exact scales; a fit must improve on them.
TEST(SuperChoice, FittedScalesBeatThoseOfMinAndMax) {
  const auto weight = heavy_tailed(41, 32 * 256);
  const MethodInput input = method_input(weight, 256, "q4_k");
  const auto fitted = super_values(require_method("rtn").choose(input).codes, 32, 256, false);
  double of_fit = 0, of_range = 0;
  for (std::size_t first = 0; first < weight.size(); first += 32) {
    const auto x = std::span(weight).subspan(first, 32);
    const double low = std::min(0.0f, *std::ranges::min_element(x));
    const double scale = (std::max(0.0f, *std::ranges::max_element(x)) - low) / 15;
    for (std::size_t i = 0; i < 32; ++i) {
      const auto value = static_cast<double>(x[i]);
      of_range += std::pow(low + scale * std::nearbyint((value - low) / scale) - value, 2);
      of_fit += std::pow(fitted[first + i] - value, 2);
    }
  }
  EXPECT_LT(of_fit, 0.9 * of_range);
}

TEST(SuperChoice, ReportsTheLossOfItsOutputs) {
  const SyntheticLayer layer = synthetic_layer(7, 160, 1600);
  for (const char* type : kTypes) {
    const MethodResult found = require_method("gptq+").choose(input_of(layer, type));
    ASSERT_TRUE(found.outputs);
    const double share =
        std::accumulate(found.outputs->errors.begin(), found.outputs->errors.end(), 0.0) /
        std::accumulate(found.outputs->energies.begin(), found.outputs->energies.end(), 0.0);
    const auto values = super_values(found.codes, 7, 160, std::string(type) == "q6_k");
    const std::vector<double> nothing(values.size());
    const double want = loss_of(layer, values, layer.statistics.hessian) /
                        loss_of(layer, nothing, layer.statistics.hessian);
    EXPECT_NEAR(share, want, 0.02 * want) << type;
  }
}

TEST(SuperChoice, TheSameForAnyNumberOfThreads) {
  const SyntheticLayer layer = synthetic_layer(100, 300, 600);
  ThreadPool pool(3);
  for (const char* type : kTypes) {
    MethodInput input = input_of(layer, type);
    const ChosenCodes alone = require_method("gptq+").choose(input).codes;
    input.pool = &pool;
    const ChosenCodes together = require_method("gptq+").choose(input).codes;
    EXPECT_EQ(alone.codes, together.codes) << type;
    EXPECT_EQ(alone.zeros, together.zeros) << type;
  }
}

TEST(SuperChoice, GroupsOfZerosAndOfOneValueKeepThem) {
  SyntheticLayer layer = synthetic_layer(2, 288, 600);
  for (std::size_t k = 0; k < 32; ++k) {
    layer.weight[k] = 0;
    layer.weight[32 + k] = -0.25f;
  }
  for (const char* type : kTypes) {
    const ChosenCodes chosen = require_method("rtn").choose(input_of(layer, type)).codes;
    const auto values = super_values(chosen, 2, 288, std::string(type) == "q6_k");
    for (std::size_t k = 0; k < 32; ++k) {
      EXPECT_NEAR(values[k], 0, 1e-3) << type;
      EXPECT_NEAR(values[32 + k], -0.25, 2e-3) << type;
    }
  }
}

}  // namespace
}  // namespace leq
