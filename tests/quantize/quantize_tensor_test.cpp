// Tensors whose rows are packed in blocks by several threads must equal those packed at once.
#include "quantize/run/quantize_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "errors.h"

namespace leq {
namespace {

TEST(QuantizeTensor, BlocksOfRowsAreTheWhole) {
  constexpr std::int64_t kRows = 700, kColumns = 200;
  Random random(3);
  std::vector<float> values(static_cast<std::size_t>(kRows * kColumns));
  for (float& value : values) value = random.normal();
  ThreadPool pool(2);
  for (const char* type : {"f16", "int8", "int4", "int3", "int2", "uint8", "int3-g64"}) {
    TensorPlan plan;
    plan.scheme = *parse_scheme(type);
    plan.act = plan.scheme.is_float() ? ActKind::none : ActKind::row;
    const PackedWeight want = pack_weight(values, kRows, kColumns, plan.scheme, plan.act, "w");
    const PackedWeight found =
        quantize_values(values, kRows, kColumns, plan, nullptr, "w", pool).weight;
    EXPECT_EQ(found.rows, kRows);
    EXPECT_EQ(found.codes == want.codes, true) << type;
    EXPECT_EQ(found.scales == want.scales, true) << type;
    EXPECT_EQ(found.zeros == want.zeros, true) << type;
    EXPECT_EQ(found.sums == want.sums, true) << type;
  }
}

// The recorded error is the squared error of all values divided by their squares.
TEST(QuantizeTensor, ItsErrorIsRelative) {
  std::vector<float> values(std::size_t{20} * 64, 0.0f);
  for (std::size_t row = 0; row < 20; ++row) {
    values[row * 64] = 127.0f;  // thus a scale of 1
    values[row * 64 + 1] = -0.25f;
    values[row * 64 + 2] = 3.25f;
  }
  ThreadPool pool(1);
  TensorPlan plan;
  plan.scheme = *parse_scheme("int8");
  const double energy = 127.0 * 127.0 + 0.25 * 0.25 + 3.25 * 3.25;
  EXPECT_NEAR(quantize_values(values, 20, 64, plan, nullptr, "w", pool).record.error,
              2 * 0.25 * 0.25 / energy, 1e-9);
}

TEST(QuantizeTensor, AValueBeyondTheTypeIsNamed) {
  constexpr std::int64_t kRows = 20, kColumns = 256;
  std::vector<float> values(static_cast<std::size_t>(kRows * kColumns), 0.5f);
  values[17 * kColumns + 5] = 1e30f;
  ThreadPool pool(2);
  TensorPlan plan;
  plan.scheme = *parse_scheme("q4_k");
  test::expect_error(
      [&] { (void)quantize_values(values, kRows, kColumns, plan, nullptr, "w", pool); },
      {"tensor w: row 17, column 5 is 1e+30, beyond what q4_k can hold",
       "store it as bf16 or f32"});
  for (const float sign : {1.0f, -1.0f}) values[3 * kColumns + (sign > 0 ? 1 : 2)] = sign * 3e38f;
  for (const QuantMethod& method : quant_methods()) {
    plan.method = &method;
    for (const char* type : {"uint8", "q4_k", "nf4", "int8"}) {
      plan.scheme = *parse_scheme(type);
      if (!method.supports(plan.scheme)) continue;
      try {
        const double error =
            quantize_values(values, kRows, kColumns, plan, nullptr, "w", pool).record.error;
        EXPECT_TRUE(std::isfinite(error)) << method.name << " " << type;
      } catch (const Error& error) {
        const std::string what = error.what();
        const bool unfit = what.find("calibrate with") != std::string::npos;
        EXPECT_TRUE(unfit || what.find(", beyond what ") != std::string::npos)
            << method.name << " " << type << ": " << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace leq
