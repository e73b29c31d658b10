// Weight-only matmuls (act none): each scheme gives the bits of the f32 linear with the scheme's
// dequantized weights, for any batch and instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "all_schemes.h"
#include "backend/cpu/cpu_backend.h"
#include "base/cpu_features.h"
#include "base/random.h"
#include "errors.h"
#include "tensor/pack.h"

namespace leq {
namespace {

// b1 has no nearest codes, so any codes are used.
PackedWeight random_b1(std::int64_t rows, std::int64_t columns, Random& random) {
  ChosenCodes chosen;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    chosen.codes.push_back(static_cast<std::int16_t>(random.below(4)));
  }
  for (std::int64_t i = 0; i < rows * ((columns + 127) / 128) * 8; ++i) {
    chosen.scales.push_back(static_cast<float>(random.below(64)) / 256.0f);
  }
  for (std::int64_t k = 0; k < columns; ++k) chosen.zeros.push_back(random.below(8) == 0 ? 1 : 0);
  return pack_codes(chosen, rows, columns, *parse_scheme("b1"), ActKind::none);
}

PackedWeight random_weight(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns,
                           Random& random) {
  if (scheme.kind == CodeKind::b1) return random_b1(rows, columns, random);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (float& value : values) value = random.normal();
  return pack_weight(values, rows, columns, scheme, ActKind::none, "w");
}

std::vector<float> numbers_of(const WeightView& weight) {
  std::vector<float> numbers(static_cast<std::size_t>(weight.rows * weight.columns));
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    unpack_row(weight, row,
               std::span(numbers).subspan(static_cast<std::size_t>(row * weight.columns),
                                          static_cast<std::size_t>(weight.columns)));
  }
  return numbers;
}

Linear linear_of(const WeightView& weight, const float* bias) {
  Linear linear;
  linear.segments = {{weight, bias}};
  linear.inputs = weight.columns;
  linear.outputs = weight.rows;
  linear.act = weight.act;
  linear.name = "layers.0.down";
  return linear;
}

std::vector<float> run(Backend& backend, const Linear& linear, const std::vector<float>& x,
                       std::int64_t tokens) {
  Rows in = backend.allocate_rows(tokens, linear.inputs, backend.layout().format_for(linear));
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::memcpy(in.values + t * in.value_stride, x.data() + t * linear.inputs,
                static_cast<std::size_t>(linear.inputs) * sizeof(float));
  }
  Rows out = backend.allocate_rows(tokens, linear.outputs, RowsFormat{});
  backend.linear(in, tokens, linear, Epilogue::none, out);
  std::vector<float> y(static_cast<std::size_t>(tokens * linear.outputs));
  backend.download(out, tokens, y);
  return y;
}

TEST(WeightOnly, EverySchemeEqualsTheFloatLinearOfItsNumbers) {
  Random random(31);
  for (const QuantScheme& scheme : test::all_schemes()) {
    const std::int64_t rows = 1 + random.below(140), columns = 1 + random.below(700);
    const PackedWeight packed = random_weight(scheme, rows, columns, random);
    const std::vector<float> numbers = numbers_of(packed.view());
    const PackedWeight plain =
        pack_weight(numbers, rows, columns, *parse_scheme("f32"), ActKind::none, "w");
    std::vector<float> bias(static_cast<std::size_t>(rows));
    for (float& value : bias) value = random.normal();
    for (const std::int64_t tokens : {1, 3, 40}) {
      std::vector<float> x(static_cast<std::size_t>(tokens * columns));
      for (float& value : x) value = random.normal();
      for (const Isa isa : supported_isas()) {
        const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
        const auto want = run(*backend, linear_of(plain.view(), bias.data()), x, tokens);
        const auto got = run(*backend, linear_of(packed.view(), bias.data()), x, tokens);
        ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
            << scheme_name(scheme) << " on " << isa_name(isa) << ", " << rows << " x " << columns
            << ", " << tokens << " tokens";
      }
    }
  }
}

TEST(WeightOnly, Nf4AndB1RefuseQuantizedInputs) {
  Random random(32);
  const auto backend = make_cpu_backend({.threads = 1, .isa = Isa::portable});
  for (const char* name : {"nf4", "b1"}) {
    const PackedWeight packed = random_weight(*parse_scheme(name), 10, 70, random);
    WeightView view = packed.view();
    view.act = ActKind::row;
    test::expect_error([&] { backend->layout().format_for(linear_of(view, nullptr)); },
                       {name, "f32 inputs"});
  }
}

}  // namespace
}  // namespace leq
