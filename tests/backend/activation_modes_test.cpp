// Tests activations with one scale for all rows (act tensor and online) and inputs that are
// smoothed at run time, in every operation that produces the input of a linear.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/matmul_case.h"
#include "base/error.h"
#include "base/random.h"
#include "errors.h"

namespace leq {
namespace {

using test::TestInputs;
using test::TestLinear;
using test::up_to;

constexpr float kScale = 0.0123f;
constexpr std::int64_t kTokens = 9;

std::vector<float> random_numbers(std::int64_t n, Random& random) {
  std::vector<float> numbers(static_cast<std::size_t>(n));
  for (float& x : numbers) x = random.normal();
  return numbers;
}

int code_of(const Rows& rows, std::int64_t t, std::int64_t k) {
  const std::uint8_t byte = rows.codes[t * rows.code_stride + k];
  return rows.format.offset_codes ? byte - 128 : static_cast<std::int8_t>(byte);
}

// Checks codes and sums of rows that were quantized with one scale from `values` [tokens][width].
void expect_codes(const Rows& rows, const std::vector<float>& values, float scale, float inverse) {
  const std::int64_t padded = up_to(rows.width, 128);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    ASSERT_EQ(rows.scales[t * rows.scale_stride], scale) << "token " << t;
    std::vector<int> want(static_cast<std::size_t>(padded), 0);
    for (std::int64_t k = 0; k < rows.width; ++k) {
      const float x = values[static_cast<std::size_t>(t * rows.width + k)];
      const double code = std::nearbyint(static_cast<double>(x * inverse));
      want[static_cast<std::size_t>(k)] = static_cast<int>(std::clamp(code, -127.0, 127.0));
    }
    for (std::int64_t k = 0; k < padded; ++k) {
      ASSERT_EQ(code_of(rows, t, k), want[static_cast<std::size_t>(k)]) << t << ", " << k;
    }
    const int group = rows.format.sum_group;
    for (std::int64_t k = 0; group > 0 && k < padded; k += group) {
      int sum = 0;
      for (std::int64_t i = k; i < std::min(padded, k + group); ++i)
        sum += want[static_cast<std::size_t>(i)];
      ASSERT_EQ(rows.sums[t * rows.sum_stride + k / group], sum);
    }
  }
}

std::vector<float> values_of(const Rows& rows) {
  std::vector<float> values;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const float* row = rows.values + t * rows.value_stride;
    values.insert(values.end(), row, row + rows.width);
  }
  return values;
}

Rows input_rows(Backend& backend, const std::vector<float>& numbers, std::int64_t width) {
  Rows rows = backend.allocate_rows(kTokens, width, {});
  for (std::int64_t t = 0; t < kTokens; ++t) {
    std::copy_n(numbers.begin() + t * width, width, rows.values + t * rows.value_stride);
  }
  return rows;
}

// Rows that share one scale must give the same products as rows that each store this scale.
TEST(OneScale, ProductsAreExact) {
  Random random(1);
  for (const char* scheme : {"int8", "int8-g32", "int8-g128", "int4-g64", "int4-g128"}) {
    for (const ActKind act : {ActKind::tensor, ActKind::online}) {
      const TestLinear test(scheme, act, {100, 20}, 300, true, random);
      TestInputs x(act, kTokens, 300, random);
      std::fill(x.scales.begin(), x.scales.end(), kScale);
      const std::vector<float> want = test.products(x);
      for (const Isa isa : supported_isas()) {
        const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
        const Rows rows = x.rows(*backend, backend->layout().format_for(test.linear), 0, kTokens);
        Rows out = backend->allocate_rows(kTokens, 120, {});
        backend->linear(rows, kTokens, test.linear, Epilogue::none, out);
        EXPECT_EQ(values_of(out), want) << scheme << " " << act_name(act) << isa_name(isa);
      }
    }
  }
}

// The input formats for 8-bit weights, for 4-bit weights in groups, and for sums over whole rows.
std::vector<RowsFormat> formats(ActKind act, std::int64_t width) {
  return {{true, act, true, 0},
          {true, act, false, 32},
          {true, act, false, 128},
          {true, act, false, static_cast<int>(up_to(width, 128))}};
}

// Runs every operation that produces rows, except attention, and passes each result to `check`.
template <class Check>
void for_producers(Backend& backend, std::int64_t width, const RowsFor& out, Random& random,
                   Check check) {
  const auto numbers = random_numbers(kTokens * width, random);
  const Rows x = input_rows(backend, numbers, width);
  const auto gain = random_numbers(width, random), beta = random_numbers(width, random);
  backend.norm(x, kTokens, {NormKind::rms, gain.data(), nullptr, 1e-5f, width}, out);
  check("rms norm");
  backend.norm(x, kTokens, {NormKind::layer, gain.data(), beta.data(), 1e-5f, width}, out);
  check("layer norm");
  const TestLinear gated("int8", ActKind::row, {width, width}, 96, true, random);
  const TestLinear plain("f32", ActKind::none, {width}, 96, false, random);
  const TestInputs codes(ActKind::row, kTokens, 96, random);
  const TestInputs floats(ActKind::none, kTokens, 96, random);
  const Rows coded = codes.rows(backend, backend.layout().format_for(gated.linear), 0, kTokens);
  const Rows floating = floats.rows(backend, backend.layout().format_for(plain.linear), 0, kTokens);
  backend.linear(coded, kTokens, gated.linear, Epilogue::gated(Activation::silu), out);
  check("swiglu");
  backend.linear(floating, kTokens, plain.linear, Epilogue::activated(Activation::gelu_tanh), out);
  check("gelu");
  backend.linear(floating, kTokens, plain.linear, Epilogue::none, out);
  check("none");
}

TEST(ActTensor, CodesAreValuesTimesTheInverseScale) {
  for (const std::int64_t width : {64, 200, 256, 330}) {
    for (const RowsFormat& format : formats(ActKind::tensor, width)) {
      for (const Isa isa : supported_isas()) {
        Random random(2);
        const auto backend = make_cpu_backend({.threads = 3, .isa = isa});
        Rows out = backend->allocate_rows(kTokens, width, format);
        for_producers(*backend, width, {out, {kScale}}, random, [&](const char* what) {
          SCOPED_TRACE(what);
          expect_codes(out, values_of(out), kScale, 1.0f / kScale);
        });
      }
    }
  }
}

TEST(ActTensor, NeedsNoValuesWhereSumsCoverAtMost128Columns) {
  Random random(3);
  const TestLinear eight("int8", ActKind::tensor, {64}, 300, false, random);
  const TestLinear four("int4-g64", ActKind::tensor, {64}, 300, false, random);
  const auto backend = make_cpu_backend({.threads = 2, .isa = supported_isas().back()});
  for (const TestLinear* consumer : {&eight, &four}) {
    RowsFormat format = backend->layout().format_for(consumer->linear);
    EXPECT_FALSE(format.values);
    const TestLinear gated("int8", ActKind::row, {300, 300}, 96, true, random);
    const TestInputs x(ActKind::row, kTokens, 96, random);
    const Rows rows = x.rows(*backend, backend->layout().format_for(gated.linear), 0, kTokens);
    Rows without = backend->allocate_rows(kTokens, 300, format);
    format.values = true;
    Rows with = backend->allocate_rows(kTokens, 300, format);
    backend->linear(rows, kTokens, gated.linear, Epilogue::gated(Activation::silu),
                    {with, {kScale}});
    backend->linear(rows, kTokens, gated.linear, Epilogue::gated(Activation::silu),
                    {without, {kScale}});
    expect_codes(without, values_of(with), kScale, 1.0f / kScale);
  }
}

// Compares a static scale with double: inputs rounded to the scale's step, times the weights.
TEST(ActTensor, IsTheNaiveProductOfRoundedInputs) {
  Random random(4);
  const std::int64_t k = 330;
  const TestLinear test("int8", ActKind::tensor, {70}, k, false, random);
  const auto numbers = random_numbers(kTokens * k, random);
  const std::vector<float> gain(static_cast<std::size_t>(k), 1.0f);
  const auto backend = make_cpu_backend({.threads = 2, .isa = supported_isas().back()});
  const Rows x = input_rows(*backend, numbers, k);
  Rows in = backend->allocate_rows(kTokens, k, backend->layout().format_for(test.linear));
  Rows out = backend->allocate_rows(kTokens, 70, {});
  backend->norm(x, kTokens, {NormKind::rms, gain.data(), nullptr, 0, k}, {in, {1.0f / 64}});
  backend->linear(in, kTokens, test.linear, Epilogue::none, out);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    double square = 0;
    for (std::int64_t i = 0; i < k; ++i)
      square += std::pow(numbers[static_cast<std::size_t>(t * k + i)], 2) / static_cast<double>(k);
    for (std::int64_t n = 0; n < 70; ++n) {
      double y = 0, size = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        const double v = numbers[static_cast<std::size_t>(t * k + i)] / std::sqrt(square);
        const double code = std::clamp(std::nearbyint(v * 64), -127.0, 127.0);
        const double w =
            double{test.weights[0]->number(n, i)} * double{test.weights[0]->scale(n, i)};
        y += code / 64 * w;
        size += std::abs(w) / 64;
      }
      // One of 330 input codes may differ, because a value near a half may round either way.
      EXPECT_NEAR(out.values[t * out.value_stride + n], y,
                  3 * size / static_cast<double>(k) + 1e-5 * size);
    }
  }
}

TEST(ActOnline, WithoutMemoryItIsDynamicPerTensorToTheBit) {
  for (const std::int64_t width : {64, 330}) {
    for (const RowsFormat& format : formats(ActKind::online, width)) {
      for (const Isa isa : supported_isas()) {
        Random random(5);
        const auto backend = make_cpu_backend({.threads = 3, .isa = isa});
        OnlineScale online({.decay = 0, .window = 1});
        Rows out = backend->allocate_rows(kTokens, width, format);
        for_producers(*backend, width, {out, {0, &online}}, random, [&](const char* what) {
          SCOPED_TRACE(what);
          const auto values = values_of(out);
          float a = 0;
          for (const float x : values) a = std::max(a, std::abs(x));
          expect_codes(out, values, a / 127.0f, 127.0f / a);
        });
        EXPECT_EQ(online.counters().steps, 5u);
        EXPECT_EQ(online.counters().values, static_cast<std::uint64_t>(5 * kTokens * width));
        EXPECT_EQ(online.counters().clipped, 0u);
      }
    }
  }
}

// Runs a norm over rows of equal width; the gain determines the magnitude of the norm's outputs.
struct NormSteps {
  NormSteps() : backend(make_cpu_backend({2, supported_isas().back()})) {
    Random random(6);
    numbers = random_numbers(kTokens * width, random);
    x = input_rows(*backend, numbers, width);
  }
  void run(float size, const RowsFor& out) {
    const std::vector<float> gain(static_cast<std::size_t>(width), size);
    backend->norm(x, kTokens, {NormKind::rms, gain.data(), nullptr, 1e-5f, width}, out);
  }
  Rows rows(ActKind act) { return backend->allocate_rows(kTokens, width, {true, act, true, 0}); }

  std::int64_t width = 200;
  std::unique_ptr<Backend> backend;
  std::vector<float> numbers;
  Rows x;
};

TEST(ActOnline, SafeModeDoesNotClipAStepUp) {
  NormSteps steps;
  OnlineScale online;
  Rows out = steps.rows(ActKind::online);
  const RowsFor to = {out, {0, &online}};
  for (const float size : {1.0f, 1.0f, 30.0f, 1.0f, 2.0f}) {
    steps.run(size, to);
    float a = 0;
    for (const float x : values_of(out)) a = std::max(a, std::abs(x));
    EXPECT_GE(out.scales[0] * 127.0f, a * (1 - 1e-6f));
  }
  EXPECT_EQ(online.counters().clipped, 0u);
}

TEST(ActOnline, StreamingCountsWhatItClips) {
  NormSteps steps;
  OnlineScale online({.mode = OnlineMode::streaming});
  Rows out = steps.rows(ActKind::online);
  const RowsFor to = {out, {0, &online}};
  steps.run(1.0f, to);
  const float range = online.save().range;
  steps.run(3.0f, to);
  EXPECT_EQ(out.scales[0], range / 127.0f);
  std::uint64_t clipped = 0;
  for (const float x : values_of(out)) clipped += std::abs(x) > range ? 1 : 0;
  EXPECT_GT(clipped, 2u);
  EXPECT_EQ(online.counters().clipped, clipped);
  EXPECT_EQ(online.counters().resets, 1u);
  steps.run(3.0f, to);
  EXPECT_FLOAT_EQ(out.scales[0], 3.0f * range / 127.0f);
}

TEST(ActOnline, UnsteadyInputsReturnToOneScaleForEachRow) {
  NormSteps steps;
  OnlineScale online({.mode = OnlineMode::streaming});
  Rows out = steps.rows(ActKind::online), want = steps.rows(ActKind::row);
  const RowsFor to = {out, {0, &online}};
  float size = 1.0f;
  for (int t = 0; t < 10; ++t) steps.run(size *= 8, to);
  ASSERT_TRUE(online.dynamic());
  const OnlineCounters before = online.counters();
  steps.run(0.5f, to);
  steps.run(0.5f, want);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    EXPECT_EQ(out.scales[t], want.scales[t]);
    EXPECT_EQ(0,
              std::memcmp(out.codes + t * out.code_stride, want.codes + t * want.code_stride, 256));
  }
  EXPECT_EQ(online.counters().steps, before.steps);
}

TEST(ActOnline, AValueThatIsNotFiniteLeavesTheScaleAlone) {
  NormSteps steps;
  OnlineScale online;
  Rows out = steps.rows(ActKind::online);
  const RowsFor to = {out, {0, &online}};
  steps.run(1.0f, to);
  const float range = online.save().range;
  EXPECT_THROW(steps.run(HUGE_VALF, to), Error);
  EXPECT_EQ(online.save().range, range);
  EXPECT_EQ(online.counters().steps, 1u);
}

TEST(ActTensor, NamesTheRowOfAValueThatIsNotFinite) {
  Random random(7);
  const TestLinear plain("f32", ActKind::none, {200}, 64, false, random);
  TestInputs x(ActKind::none, kTokens, 64, random);
  x.numbers[4 * 64 + 3] = std::nanf("");
  const auto backend = make_cpu_backend({.threads = 2, .isa = supported_isas().back()});
  const Rows rows = x.rows(*backend, backend->layout().format_for(plain.linear), 0, kTokens);
  Rows out = backend->allocate_rows(kTokens, 200, {false, ActKind::tensor, true, 0});
  EXPECT_THROW(
      backend->linear(rows, kTokens, plain.linear, Epilogue::activated(Activation::gelu_tanh), out),
      Error)
      << "a scale is missing";
  test::expect_error(
      [&] {
        backend->linear(rows, kTokens, plain.linear, Epilogue::activated(Activation::gelu_tanh),
                        {out, {kScale}});
      },
      {"token 4"});
}

// f32 rows must equal the unsmoothed rows times the vector; codes are computed from these rows.
TEST(InvSmooth, MultipliesFinishedRows) {
  for (const ActKind act : {ActKind::none, ActKind::row, ActKind::g128, ActKind::tensor}) {
    for (const std::int64_t width : {64, 192, 330}) {
      for (const Isa isa : supported_isas()) {
        Random random(8), again(8), vector_random(9);
        const auto smooth = random_numbers(width, vector_random);
        const auto backend = make_cpu_backend({.threads = 3, .isa = isa});
        const bool coded = act != ActKind::none;
        Rows plain = backend->allocate_rows(kTokens, width, {});
        Rows out = backend->allocate_rows(kTokens, width, {true, act, coded, 0});
        std::vector<std::vector<float>> want;
        for_producers(*backend, width, plain, random, [&](const char*) {
          want.push_back(values_of(plain));
          for (std::size_t i = 0; i < want.back().size(); ++i) {
            want.back()[i] *= smooth[i % static_cast<std::size_t>(width)];
          }
        });
        std::size_t next = 0;
        for_producers(
            *backend, width, {out, {kScale, nullptr, smooth.data()}}, again, [&](const char* what) {
              const std::vector<float>& values = want[next++];
              ASSERT_EQ(values_of(out), values) << what << " " << act_name(act) << isa_name(isa);
              if (act == ActKind::tensor) expect_codes(out, values, kScale, 1.0f / kScale);
              if (act == ActKind::row) {
                float a = 0;
                for (std::int64_t k = 0; k < width; ++k)
                  a = std::max(a, std::abs(values[static_cast<std::size_t>(k)]));
                EXPECT_EQ(out.scales[0], a / 127.0f) << what;
              }
            });
      }
    }
  }
}

TEST(InvSmooth, AResidualIsNotSmoothed) {
  Random random(10);
  const TestLinear test("f32", ActKind::none, {64}, 64, false, random);
  const TestInputs x(ActKind::none, 2, 64, random);
  const auto backend = make_cpu_backend({.threads = 1, .isa = supported_isas().back()});
  const Rows rows = x.rows(*backend, backend->layout().format_for(test.linear), 0, 2);
  const std::vector<float> ones(64, 1.0f);
  Rows out = backend->allocate_rows(2, 64, {});
  const RowsFor smoothed = {out, {0, nullptr, ones.data()}};
  EXPECT_THROW(backend->linear(rows, 2, test.linear, Epilogue::add, smoothed), Error);
}

}  // namespace
}  // namespace leq
