// Rows of the residual stream on every backend: memory, embedding, norms, moving scales.
#include "backends.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "errors.h"

namespace leq {
namespace {

class RowsConformance : public test::Conformance {};

TEST_P(RowsConformance, RowsAllocateTheBytesOfTheirLayout) {
  Linear consumer;
  consumer.inputs = 300;
  consumer.act = ActKind::g128;
  consumer.segments.resize(1);
  consumer.segments[0].weight.scheme = require_scheme("int4-g64", "test");
  consumer.segments[0].weight.act = ActKind::g128;
  const RowsFormat format = backend->layout().format_for(consumer);
  const std::size_t before = backend->memory().allocated();
  {
    const Rows rows = backend->allocate_rows(7, 300, format);
    EXPECT_EQ(backend->memory().allocated() - before, backend->layout().rows(7, 300, format).bytes);
  }
  EXPECT_EQ(backend->memory().allocated(), before);
  EXPECT_GE(backend->memory().peak(), before + backend->layout().rows(7, 300, format).bytes);
  const AttentionShape shape{8, 2, 32, 0, nullptr, nullptr, true};
  backend->memory().scratch(backend->layout().scratch_bytes(20, shape, 600));
  EXPECT_EQ(backend->memory().allocated() - before,
            backend->layout().scratch_bytes(20, shape, 600));
}

TEST_P(RowsConformance, RowsReadBackAndGatherUnchanged) {
  const auto numbers = test::random_numbers(5 * 77, 1);
  const Rows x = rows_of(numbers, 77);
  EXPECT_EQ(values_of(x, 5), numbers);
  Rows picked = backend->allocate_rows(3, 77, {});
  backend->gather_rows(x, std::vector<std::int32_t>{4, 0, 4}, picked);
  const auto found = values_of(picked, 3);
  for (std::size_t k = 0; k < 77; ++k) {
    ASSERT_EQ(found[k], numbers[4 * 77 + k]);
    ASSERT_EQ(found[77 + k], numbers[k]);
    ASSERT_EQ(found[2 * 77 + k], numbers[4 * 77 + k]);
  }
}

TEST_P(RowsConformance, EmbeddingsAreTheRowsOfEveryScheme) {
  const std::int64_t rows = 70, columns = 200;
  const auto numbers = test::random_numbers(rows * columns, 3);
  for (const char* name :
       {"f32", "f16", "bf16", "int8", "int8-g64", "int4-g128", "int4-g32", "int3-g64", "int2-g128",
        "uint8", "uint8-g32", "uint4-g64", "uint3-g32", "uint2-g128", "mxfp4", "iq4_nl", "nvfp4"}) {
    const PackedWeight packed =
        pack_weight(numbers, rows, columns, require_scheme(name, "test"), ActKind::none, "table");
    const WeightView table = upload_weight(packed);
    const std::vector<std::int32_t> ids = {0, 69, 63, 64, 5, 5};
    Rows x = backend->allocate_rows(6, columns, {});
    backend->embed({table, ids}, x);
    const std::vector<std::int32_t> one = {1}, beyond = {70};
    backend->embed({table, std::span(ids).first(1), &table, one}, x);
    const auto found = values_of(x, 6);
    std::vector<float> row(static_cast<std::size_t>(columns)), second = row;
    unpack_row(packed.view(), 1, second);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      unpack_row(packed.view(), ids[t], row);
      for (std::size_t k = 0; k < row.size(); ++k) {
        ASSERT_EQ(found[t * row.size() + k], t == 0 ? row[k] + second[k] : row[k])
            << name << " row " << ids[t] << " column " << k;
      }
    }
    EXPECT_THROW(backend->embed({table, beyond}, x), Error);
    EXPECT_THROW(backend->embed({table, ids, &table, one}, x), Error);
  }
}

TEST_P(RowsConformance, EmbeddingsAreScaledBeforePositionsAreAdded) {
  const std::int64_t columns = 300;
  const auto numbers = test::random_numbers(8 * columns, 5);
  const std::vector<std::int32_t> ids = {7, 0, 3}, at = {1, 2, 2};
  for (const char* name : {"f32", "int8-g64"}) {
    const PackedWeight packed =
        pack_weight(numbers, 8, columns, require_scheme(name, "test"), ActKind::none, "table");
    const WeightView table = upload_weight(packed);
    Rows x = backend->allocate_rows(3, columns, {});
    std::vector<float> row(static_cast<std::size_t>(columns)), position = row;
    for (const bool learned : {false, true}) {
      backend->embed({table, ids, learned ? &table : nullptr, at, 17.5f}, x);
      const auto found = values_of(x, 3);
      for (std::size_t t = 0; t < ids.size(); ++t) {
        unpack_row(packed.view(), ids[t], row);
        unpack_row(packed.view(), at[t], position);
        for (std::size_t k = 0; k < row.size(); ++k) {
          const float scaled = row[k] * 17.5f;
          ASSERT_EQ(found[t * row.size() + k], learned ? scaled + position[k] : scaled) << name;
        }
      }
    }
  }
}

TEST_P(RowsConformance, AreAddedMultipliedAndCapped) {
  const std::int64_t width = 301;
  const auto x = test::random_numbers(4 * width, 6), y = test::random_numbers(4 * width, 7);
  Rows sum = rows_of(x, width);
  backend->add_rows(rows_of(y, width), 3, 0.75f, sum);
  const auto added = values_of(sum, 4);
  for (std::size_t i = 0; i < added.size(); ++i) {
    ASSERT_EQ(added[i], i < std::size_t{3 * 301} ? (x[i] + y[i]) * 0.75f : x[i]);
  }
  backend->multiply_rows(rows_of(y, width), 3, sum);
  const auto multiplied = values_of(sum, 4);
  for (std::size_t i = 0; i < added.size(); ++i) {
    ASSERT_EQ(multiplied[i], i < std::size_t{3 * 301} ? added[i] * y[i] : x[i]);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  auto wide = x;
  for (float& number : wide) number *= 40;
  wide[0] = infinity;
  wide[1] = -infinity;
  wide[2] = 0;
  Rows logits = rows_of(wide, width);
  backend->cap_logits(logits, 3, 0.75f, 20);
  const auto found = values_of(logits, 4);
  EXPECT_EQ(found[0], infinity);
  EXPECT_EQ(found[1], -infinity);
  EXPECT_EQ(found[2], 0.0f);
  for (std::size_t i = 3; i < found.size(); ++i) {
    const bool capped = i < std::size_t{3 * 301};
    ASSERT_NEAR(found[i], capped ? 20 * std::tanh(0.75 * wide[i] / 20) : wide[i], 2e-5) << i;
  }
}

// Sums of f32 squares may have any order, so they are compared with double.
TEST_P(RowsConformance, NormsAgreeWithDouble) {
  constexpr double kTolerance = 3e-6;
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const std::int64_t width : {2, 100, 128, 1000, 2049}) {
      const auto n = static_cast<std::size_t>(width);
      const auto x = test::random_numbers(3 * width, 5), gain = test::random_numbers(width, 6);
      const auto beta = test::random_numbers(width, 7), smooth = test::random_numbers(width, 8);
      const Norm norm = {kind, upload_vector(gain), upload_vector(beta), 1e-5f, width};
      const Rows in = rows_of(x, width);
      Rows out = backend->allocate_rows(3, width, {});
      backend->norm(in, 3, norm, {out, {0, nullptr, upload_vector(smooth)}});
      const auto found = values_of(out, 3);
      for (std::size_t t = 0; t < 3; ++t) {
        double mean = 0, squares = 0;
        if (kind == NormKind::layer) {
          for (std::size_t k = 0; k < n; ++k) mean += x[t * n + k] / static_cast<double>(n);
        }
        for (std::size_t k = 0; k < n; ++k) {
          squares += std::pow(x[t * n + k] - mean, 2) / static_cast<double>(n);
        }
        for (std::size_t k = 0; k < n; ++k) {
          double want = (x[t * n + k] - mean) / std::sqrt(squares + 1e-5) * gain[k];
          if (kind == NormKind::layer) want += beta[k];
          want *= smooth[k];
          ASSERT_NEAR(found[t * n + k], want, kTolerance * (3 + std::abs(want)));
        }
      }
    }
  }
}

// The clock of a step counts operations, bytes and seconds for each part of the step
// between its start and its stop. A clock that is stopped right after its start has counted
// nothing.
TEST_P(RowsConformance, TimesAreThoseOfTheOperationsBetween) {
  const float* gain = upload_vector(std::vector<float>(256, 1.0f));
  const Norm norm = {NormKind::rms, gain, nullptr, 1e-5f, 256};
  const Rows x = rows_of(test::random_numbers(3 * 256, 1), 256);
  Rows out = backend->allocate_rows(3, 256, {});
  backend->norm(x, 3, norm, out);
  backend->start_times();
  backend->norm(x, 3, norm, out);
  backend->norm(x, 2, norm, out);
  const StepTimes times = backend->stop_times();
  backend->norm(x, 3, norm, out);
  EXPECT_EQ(times[StepPart::quant].operations, 2);
  EXPECT_EQ(times[StepPart::quant].bytes, 5u * 2 * 256 * sizeof(float));
  EXPECT_GT(times[StepPart::quant].seconds, 0);
  EXPECT_EQ(times[StepPart::gemm].operations, 0);
  EXPECT_EQ(times[StepPart::gemm].seconds, 0);
  backend->start_times();
  EXPECT_EQ(backend->stop_times()[StepPart::quant].seconds, 0);
}

TEST_P(RowsConformance, MovingScalesSeeEachStep) {
  const std::int64_t width = 160;
  const Norm norm = {NormKind::rms,
                     upload_vector(std::vector<float>(static_cast<std::size_t>(width), 1.0f)),
                     nullptr, 1e-5f, width};
  for (const OnlineMode mode : {OnlineMode::safe, OnlineMode::streaming}) {
    OnlineScale scale({.mode = mode}), wanted({.mode = mode});
    RowsFormat format;
    format.act = ActKind::online;
    Rows out = backend->allocate_rows(4, width, format);
    Rows plain = backend->allocate_rows(4, width, {});
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto numbers = test::random_numbers(4 * width, step);
      if (step == 3) numbers[200] = 40;  // an outlier
      const Rows x = rows_of(numbers, width);
      backend->norm(x, 4, norm, plain);
      backend->norm(x, 4, norm, {out, {0, &scale}});
      backend->synchronize();
      float largest = 0;
      const auto values = values_of(plain, 4);
      for (const float value : values) largest = std::max(largest, std::abs(value));
      const float range = wanted.begin(largest);
      const auto clipped =
          std::count_if(values.begin(), values.end(), [&](float v) { return std::abs(v) > range; });
      wanted.end(static_cast<std::uint64_t>(clipped), values.size());
      ASSERT_EQ(scale.save().range, wanted.save().range) << step;
      ASSERT_EQ(scale.counters().clipped, wanted.counters().clipped) << step;
    }
  }
}

// A batch with a non-finite number must always give the same error and update no scale, not even a
// scale of an operation that follows the bad row.
TEST_P(RowsConformance, MovingScalesForgetABatchThatFails) {
  const std::int64_t width = 160;
  const Norm norm = {NormKind::rms,
                     upload_vector(std::vector<float>(static_cast<std::size_t>(width), 1.0f)),
                     nullptr, 1e-5f, width};
  RowsFormat format;
  format.act = ActKind::online;
  Rows out = backend->allocate_rows(4, width, format);
  for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{4}}) {
    OnlineScale first, second;
    const auto step = [&](const Rows& x) {
      for (OnlineScale* scale : {&first, &second}) {
        backend->norm(x, tokens, norm, {out, {0, scale}});
      }
      backend->synchronize();
    };
    auto numbers = test::random_numbers(4 * width, 7);
    const Rows good = rows_of(numbers, width);
    step(good);
    numbers[static_cast<std::size_t>((tokens - 1) * width)] = std::nanf("");
    const Rows bad = rows_of(numbers, width);
    const std::string found = test::error_of([&] { step(bad); });
    const std::string want = "norm, token " + std::to_string(tokens - 1) + " of the batch";
    EXPECT_TRUE(found.starts_with(want)) << found;
    EXPECT_EQ(first.counters().steps, 1u);
    EXPECT_EQ(second.counters().steps, 1u);
    step(good);  // the backend still works
    EXPECT_EQ(first.counters().steps, 2u);
    EXPECT_EQ(second.counters().steps, 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RowsConformance, testing::ValuesIn(test::all_backends()),
                         test::case_name);

}  // namespace
}  // namespace leq
