// Linears of every scheme and kind of activations on every backend: integer sums are exact and
// float steps have the documented order; products of floats must be close to double.
#include <algorithm>
#include <map>

#include "backends.h"
#include "base/error.h"
#include "base/float_math.h"
#include "table_numbers.h"
#include "tensor/quant_scheme.h"

namespace leq {
namespace {

using test::columns_of_scale;
using test::Conformance;
using test::QuantizedRow;

constexpr float kActScale = 0.03f;

struct Problem {
  std::string scheme;
  ActKind act;
  std::int64_t tokens, inputs;
  std::vector<std::int64_t> outputs;  // outputs of each segment
};

// Returns y of one row of a segment by the table of docs/numerics.md.
float expected_output(const WeightView& w, std::int64_t n, const QuantizedRow& x, ActKind act,
                      const float* bias) {
  const std::int64_t all = w.padded_columns();
  const std::int64_t of_scale = columns_of_scale(act);
  const bool by_group = w.scheme.scaling == Scaling::group, by_act = of_scale > 0;
  const std::int64_t group =
      std::min<std::int64_t>(by_group ? w.scheme.group : all, by_act ? of_scale : all);
  float f = 0;
  std::int64_t total = 0;
  for (std::int64_t first = 0; first < w.columns; first += group) {
    std::int64_t sum = 0;
    for (std::int64_t k = first; k < std::min(first + group, w.columns); ++k) {
      const int number = test::table_number(w.scheme, code_at(w, n, k)) - zero_at(w, n, k);
      sum += number * x.codes[static_cast<std::size_t>(k)];
    }
    total += sum;
    const float of_act = by_act ? x.scales[static_cast<std::size_t>(first / of_scale)] : 1.0f;
    const float of_weight = by_group ? scale_at(w, n, first) : 1.0f;
    f = std::fma(static_cast<float>(sum), of_weight * of_act, f);
  }
  const float s_t = x.scales[0];
  if (by_group && by_act) return bias == nullptr ? f : f + *bias;
  if (by_group) return bias == nullptr ? f * s_t : std::fma(f, s_t, *bias);
  const float s_n = scale_at(w, n, 0);
  if (by_act) return bias == nullptr ? f * s_n : std::fma(f, s_n, *bias);
  const auto sum = static_cast<float>(total);
  return bias == nullptr ? sum * (s_t * s_n) : std::fma(sum, s_t * s_n, *bias);
}

class LinearConformance : public Conformance {
 protected:
  struct Made {
    std::vector<PackedWeight> packed;
    std::vector<std::vector<float>> biases;
    Linear linear;
  };

  Made make(const Problem& p, bool biased) {
    Made made;
    made.linear.name = "test";
    made.linear.inputs = p.inputs;
    made.linear.act = p.act;
    made.linear.act_scale = kActScale;
    std::uint64_t seed = 11;
    for (const std::int64_t rows : p.outputs) {
      made.packed.push_back(pack_weight(test::random_numbers(rows * p.inputs, ++seed), rows,
                                        p.inputs, require_scheme(p.scheme, "test"), p.act, "w"));
      made.biases.push_back(test::random_numbers(rows, ++seed));
    }
    for (std::size_t i = 0; i < p.outputs.size(); ++i) {
      LinearSegment& segment = made.linear.segments.emplace_back();
      segment.weight = upload_weight(made.packed[i]);
      if (biased) segment.bias = upload_vector(made.biases[i]);
      made.linear.outputs += p.outputs[i];
    }
    return made;
  }

  // Returns rows in the input format of `linear`, as a norm produces them, and their values.
  Rows inputs(const Linear& linear, std::int64_t tokens, std::vector<float>& values) {
    const Rows x = rows_of(test::random_numbers(tokens * linear.inputs, 5), linear.inputs);
    const Norm norm = {NormKind::rms, upload_vector(test::random_numbers(linear.inputs, 6)),
                       nullptr, 1e-5f, linear.inputs};
    Rows plain = backend->allocate_rows(tokens, linear.inputs, {});
    backend->norm(x, tokens, norm, plain);
    values = values_of(plain, tokens);
    Rows coded =
        backend->allocate_rows(tokens, linear.inputs, backend->layout().format_for(linear));
    backend->norm(x, tokens, norm, {coded, {linear.act_scale}});
    return coded;
  }

  void expect_exact(const Problem& p, bool biased) {
    const Made made = make(p, biased);
    std::vector<float> values;
    const Rows x = inputs(made.linear, p.tokens, values);
    Rows out = backend->allocate_rows(p.tokens, made.linear.outputs, {});
    backend->linear(x, p.tokens, made.linear, Epilogue::none, out);
    const auto found = values_of(out, p.tokens);
    std::size_t at = 0;
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      const auto row =
          test::quantize_row(std::span(values).subspan(static_cast<std::size_t>(t * p.inputs),
                                                       static_cast<std::size_t>(p.inputs)),
                             columns_of_scale(p.act) > 0 ? columns_of_scale(p.act) : p.inputs,
                             p.act == ActKind::tensor ? kActScale : 0);
      for (std::size_t i = 0; i < p.outputs.size(); ++i) {
        for (std::int64_t n = 0; n < p.outputs[i]; ++n, ++at) {
          const float* bias = biased ? &made.biases[i][static_cast<std::size_t>(n)] : nullptr;
          ASSERT_EQ(found[at], expected_output(made.packed[i].view(), n, row, p.act, bias))
              << p.scheme << " " << act_name(p.act) << " token " << t << " segment " << i
              << " output " << n;
        }
      }
    }
  }
};

TEST_P(LinearConformance, IntegerProductsAreExactForEverySchemeAndActivation) {
  for (const char* scheme : {"int8", "int8-tensor", "int8-g32", "int8-g64", "int8-g128", "int4-g32",
                             "int4-g128", "int3-g64", "int3-g128", "int2-g64", "uint8", "uint8-g64",
                             "uint4-g128", "uint3-g32", "uint2-g128", "mxfp4", "iq4_nl", "nvfp4"}) {
    for (const ActKind act : {ActKind::row, ActKind::g128, ActKind::g32, ActKind::tensor}) {
      if (!fits_act(require_scheme(scheme, "test"), act)) continue;
      for (const std::int64_t tokens : {3, 10})
        expect_exact({scheme, act, tokens, 200, {70}}, true);
    }
  }
}

TEST_P(LinearConformance, ProductsOfManyShapesAreExact) {
  for (const std::int64_t tokens : {1, 2, 7, 17, 33}) {
    expect_exact({"int8", ActKind::row, tokens, 384, {130}}, false);
    expect_exact({"int4-g128", ActKind::g128, tokens, 257, {65}}, true);
    expect_exact({"int8", ActKind::g32, tokens, 1056, {65}}, true);
    expect_exact({"uint4-g32", ActKind::g32, tokens, 1040, {65}}, true);
  }
  expect_exact({"int8", ActKind::g128, 5, 160, {96, 32, 32}}, true);
  expect_exact({"int4-g64", ActKind::row, 4, 1000, {1, 64, 3}}, true);
}

TEST_P(LinearConformance, EpiloguesFollowTheirFormulas) {
  const Problem p = {"int8", ActKind::row, 3, 160, {100, 100}};
  const Made made = make(p, true);
  std::vector<float> values;
  const Rows x = inputs(made.linear, p.tokens, values);
  Rows plain = backend->allocate_rows(p.tokens, 200, {});
  backend->linear(x, p.tokens, made.linear, Epilogue::none, plain);
  const auto y = values_of(plain, p.tokens);

  const auto before = test::random_numbers(p.tokens * 200, 9);
  Rows residual = rows_of(before, 200);
  backend->linear(x, p.tokens, made.linear, Epilogue::add, residual);
  const auto added = values_of(residual, p.tokens);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(added[i], before[i] + y[i]);

  Rows gelu = backend->allocate_rows(p.tokens, 200, {});
  backend->linear(x, p.tokens, made.linear, Epilogue::activated(Activation::gelu_tanh), gelu);
  const auto activated = values_of(gelu, p.tokens);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(activated[i], gelu_new(y[i]));

  Rows gated = backend->allocate_rows(p.tokens, 100, {});
  for (const Activation f : {Activation::silu, Activation::gelu_tanh, Activation::clamped_swiglu}) {
    backend->linear(x, p.tokens, made.linear, Epilogue::gated(f), gated);
    const auto products = values_of(gated, p.tokens);
    for (std::size_t t = 0; t < 3; ++t) {
      for (std::size_t n = 0; n < 100; ++n) {
        const float gate = y[t * 200 + n], up = y[t * 200 + 100 + n];
        const float want = f == Activation::silu        ? silu(gate) * up
                           : f == Activation::gelu_tanh ? gelu_new(gate) * up
                                                        : clamped_swiglu(gate, up);
        ASSERT_EQ(products[t * 100 + n], want);
      }
    }
  }
}

// Sums of f32 products may have any order, so they are compared with double.
TEST_P(LinearConformance, FloatInputsAgreeWithDouble) {
  constexpr double kTolerance = 3e-5;
  for (const char* scheme : {"f32", "f16", "bf16", "int8", "int8-g128", "int4-g64", "int3-g128",
                             "uint2-g32", "uint8", "iq4_nl"}) {
    const Problem p = {scheme, ActKind::none, 5, 300, {70, 9}};
    const Made made = make(p, true);
    std::vector<float> values;
    if (parse_scheme(scheme)->has_table() && !GetParam().name.starts_with("cpu_")) {
      EXPECT_THROW(inputs(made.linear, p.tokens, values), Error) << "by the CPU alone";
      continue;
    }
    const Rows x = inputs(made.linear, p.tokens, values);
    Rows out = backend->allocate_rows(p.tokens, made.linear.outputs, {});
    backend->linear(x, p.tokens, made.linear, Epilogue::none, out);
    const auto found = values_of(out, p.tokens);
    std::size_t at = 0;
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      for (std::size_t i = 0; i < 2; ++i) {
        std::vector<float> row(300);
        for (std::int64_t n = 0; n < p.outputs[i]; ++n, ++at) {
          unpack_row(made.packed[i].view(), n, row);
          double sum = made.biases[i][static_cast<std::size_t>(n)], size = 1;
          for (std::size_t k = 0; k < row.size(); ++k) {
            const double product = double{row[k]} * values[static_cast<std::size_t>(t) * 300 + k];
            sum += product;
            size += std::abs(product);
          }
          ASSERT_NEAR(found[at], sum, kTolerance * std::sqrt(size)) << scheme << " output " << n;
        }
      }
    }
  }
}

// The first linear's outputs are codes; the second linear, an identity matrix, reads them back.
TEST_P(LinearConformance, OutputsAreQuantizedAsTheirConsumerWants) {
  for (const ActKind act : {ActKind::row, ActKind::g128, ActKind::g32, ActKind::tensor}) {
    const std::int64_t group = columns_of_scale(act) > 0 ? columns_of_scale(act) : 200;
    const Made first = make({"int8", ActKind::row, 4, 128, {200}}, true);
    std::vector<float> values;
    const Rows x = inputs(first.linear, 4, values);
    ChosenCodes chosen;
    chosen.codes.assign(200 * 200, 0);
    for (std::size_t n = 0; n < 200; ++n) chosen.codes[n * 200 + n] = 1;
    chosen.scales.assign(200, 1.0f);
    const PackedWeight identity = pack_codes(chosen, 200, 200, require_scheme("int8", "test"), act);
    Linear second;
    second.name = "second";
    second.inputs = second.outputs = 200;
    second.act = act;
    second.segments = {{upload_weight(identity), nullptr}};
    const auto smooth = test::random_numbers(200, 77);

    Rows plain = backend->allocate_rows(4, 200, {});
    backend->linear(x, 4, first.linear, Epilogue::activated(Activation::gelu_tanh), plain);
    auto want = values_of(plain, 4);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = want[i] * smooth[i % 200];
    Rows coded = backend->allocate_rows(4, 200, backend->layout().format_for(second));
    const RowsConsumer reader = {kActScale, nullptr, upload_vector(smooth)};
    backend->linear(x, 4, first.linear, Epilogue::activated(Activation::gelu_tanh),
                    {coded, reader});
    Rows seen = backend->allocate_rows(4, 200, {});
    backend->linear(coded, 4, second, Epilogue::none, seen);
    const auto found = values_of(seen, 4);
    for (std::size_t t = 0; t < 4; ++t) {
      const auto row = test::quantize_row(std::span(want).subspan(t * 200, 200), group,
                                          act == ActKind::tensor ? kActScale : 0);
      for (std::size_t n = 0; n < 200; ++n) {
        const float scale = row.scales[n / static_cast<std::size_t>(group)];
        ASSERT_EQ(found[t * 200 + n], static_cast<float>(row.codes[n]) * scale)
            << act_name(act) << " row " << t << " column " << n;
      }
    }
  }
}

TEST_P(LinearConformance, NamesTheLinearAndRowOfAValueThatIsNotFinite) {
  const Made made = make({"f32", ActKind::none, 3, 64, {128}}, false);
  auto values = test::random_numbers(3 * 64, 4);
  values[64 + 5] = INFINITY;
  const Rows x = rows_of(values, 64);
  Linear consumer = make({"int8", ActKind::g128, 3, 128, {64}}, false).linear;
  Rows coded = backend->allocate_rows(3, 128, backend->layout().format_for(consumer));
  try {
    backend->linear(x, 3, made.linear, Epilogue::none, coded);
    backend->synchronize();
    FAIL() << "infinity was quantized";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("test, token 1 of the batch"), std::string::npos)
        << error.what();
  }
  backend->synchronize();  // reported only once
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearConformance, testing::ValuesIn(test::all_backends()),
                         test::case_name);

}  // namespace
}  // namespace leq
