// q4_k, q5_k and q6_k must give the bits of the documented order with sums over whole rows on every
// instruction set. The reference uses the codes before pack_codes, which chooses the layout.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "base/cpu_features.h"
#include "base/half.h"
#include "matmul_case.h"
#include "tensor/pack.h"

namespace leq {
namespace {

using test::Fill;
using test::TestInputs;

struct SuperCase {
  std::string scheme;
  std::int64_t rows = 0, columns = 0;
  ChosenCodes chosen;
  PackedWeight packed;
  std::vector<float> bias;
};

bool is_6(const SuperCase& c) { return c.scheme == "q6_k"; }

// Codes and scales are random; if `extreme`, all of them are the largest.
SuperCase make_case(const std::string& scheme, ActKind act, std::int64_t rows, std::int64_t columns,
                    bool biased, Fill fill, Random& random) {
  SuperCase c = {scheme, rows, columns, {}, {}, {}};
  const QuantScheme parsed = *parse_scheme(scheme);
  const bool extreme = fill == Fill::extreme;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto levels = static_cast<std::uint32_t>(1 << parsed.bits);
    c.chosen.codes.push_back(
        static_cast<std::int16_t>(extreme ? levels - 1 : random.below(levels)));
  }
  const std::int64_t supers = (columns + 255) / 256 * (is_6(c) ? 1 : 2);
  for (std::int64_t i = 0; i < rows * supers; ++i) {
    c.chosen.scales.push_back(f16_to_f32(f32_to_f16(0.01f * random.normal())));
  }
  const std::int64_t subs = is_6(c) ? (columns + 15) / 16 : (columns + 31) / 32 * 2;
  for (std::int64_t i = 0; i < rows * subs; ++i) {
    const std::uint32_t any = random.below(256);  // GGUF has 6 bits, leq's own codes 8
    c.chosen.zeros.push_back(static_cast<std::uint8_t>(extreme ? (is_6(c) ? 128 : 255) : any));
  }
  for (std::int64_t i = 0; biased && i < rows; ++i) c.bias.push_back(random.normal());
  c.packed = pack_codes(c.chosen, rows, columns, parsed, act);
  return c;
}

// Returns y for one output and one token.
float expected(const SuperCase& c, std::int64_t row, const TestInputs& x, std::int64_t token) {
  const std::int64_t supers = (c.columns + 255) / 256;
  const std::int64_t sub = is_6(c) ? 16 : 32;
  const std::int64_t subs = (c.columns + sub - 1) / sub;
  const std::int64_t span = scale_columns(x.act) > 0 ? scale_columns(x.act) : 128;
  float f = 0;
  for (std::int64_t at_span = 0; at_span < c.columns; at_span += span) {
    std::int64_t a = 0, b = 0;
    for (std::int64_t first = at_span; first < std::min(at_span + span, c.columns); first += sub) {
      std::int64_t products = 0, inputs = 0;
      for (std::int64_t k = first; k < std::min(first + sub, c.columns); ++k) {
        const auto q = static_cast<std::int64_t>(x.number(token, k));
        products += c.chosen.codes[static_cast<std::size_t>(row * c.columns + k)] * q;
        inputs += q;
      }
      const auto at = static_cast<std::size_t>(row * subs + first / sub);
      if (is_6(c)) {
        a += static_cast<std::int8_t>(c.chosen.zeros[at]) * (products - 32 * inputs);
      } else {
        a += c.chosen.zeros[2 * at] * products;
        b += c.chosen.zeros[2 * at + 1] * inputs;
      }
    }
    const auto super = static_cast<std::size_t>((row * supers + at_span / 256) * (is_6(c) ? 1 : 2));
    const float by_token = x.scale(token, at_span);
    f = std::fma(static_cast<float>(a), c.chosen.scales[super] * by_token, f);
    if (is_6(c)) continue;
    f = std::fma(-static_cast<float>(b), c.chosen.scales[super + 1] * by_token, f);
  }
  return c.bias.empty() ? f : f + c.bias[static_cast<std::size_t>(row)];
}

void expect_exact(const SuperCase& c, ActKind act, std::int64_t tokens, Fill fill, Random& random) {
  const TestInputs x(act, tokens, c.columns, random, fill);
  Linear linear;
  test::AlignedBytes codes(std::ssize(c.packed.codes));  // aligned as in a file
  std::memcpy(codes.as<std::byte>(), c.packed.codes.data(), c.packed.codes.size());
  linear.segments.resize(1);
  linear.segments[0].weight = c.packed.view();
  linear.segments[0].weight.codes = codes.as<const std::byte>();
  linear.segments[0].bias = c.bias.empty() ? nullptr : c.bias.data();
  linear.outputs = c.rows;
  linear.inputs = c.columns;
  linear.act = act;
  linear.name = "test";
  for (const Isa isa : supported_isas()) {
    const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
    const Rows rows = x.rows(*backend, backend->layout().format_for(linear), 0, tokens);
    Rows out = backend->allocate_rows(tokens, c.rows, RowsFormat{});
    backend->linear(rows, tokens, linear, Epilogue::none, out);
    backend->synchronize();
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t n = 0; n < c.rows; ++n) {
        const float want = expected(c, n, x, t);
        const float got = out.values[t * out.value_stride + n];
        ASSERT_EQ(std::bit_cast<std::uint32_t>(want), std::bit_cast<std::uint32_t>(got))
            << c.scheme << " act " << act_name(act) << " on " << isa_name(isa) << ", " << c.rows
            << " x " << c.columns << ", " << tokens << " tokens: output " << n << " of token " << t
            << " expected " << want << ", found " << got;
      }
    }
  }
}

// Returns the input formats of this build that have a scale per row or per group of columns.
std::vector<ActKind> super_acts() {
  std::vector<ActKind> acts;
  for (const char* name : {"row", "g128", "g64", "g32"}) {
    if (const auto act = parse_act(name)) acts.push_back(*act);
  }
  return acts;
}

TEST(SuperMatmul, IsExactOnEveryIsa) {
  Random random(5);
  for (const std::string scheme : {"q4_k", "q5_k", "q6_k"}) {
    for (const ActKind act : super_acts()) {
      for (const std::int64_t tokens : {1, 2, 3, 4, 5, 8, 13, 16, 33, 64}) {
        const std::int64_t columns = 256 * (1 + random.below(3));
        const SuperCase c = make_case(scheme, act, 1 + random.below(150), columns,
                                      random.below(2) == 0, Fill::random, random);
        expect_exact(c, act, tokens, Fill::random, random);
      }
    }
  }
}

TEST(SuperMatmul, IsExactForTheLargestNumbers) {
  Random random(6);
  for (const std::string scheme : {"q4_k", "q5_k", "q6_k"}) {
    const SuperCase c = make_case(scheme, ActKind::row, 70, 512, true, Fill::extreme, random);
    for (const std::int64_t tokens : {5, 40}) {
      expect_exact(c, ActKind::row, tokens, Fill::extreme, random);
    }
  }
}

// Rows that end within a superblock do not exist in GGUF, but are allowed in .leq files.
TEST(SuperMatmul, IsExactForAnyNumberOfColumns) {
  Random random(7);
  for (const std::string scheme : {"q4_k", "q5_k", "q6_k"}) {
    for (const std::int64_t columns : {32, 100, 130, 391, 700}) {
      const SuperCase c =
          make_case(scheme, ActKind::g128, 66, columns, false, Fill::random, random);
      for (const std::int64_t tokens : {6, 35}) {
        expect_exact(c, ActKind::g128, tokens, Fill::random, random);
      }
    }
  }
}

// These are more tokens than a kernel processes at once.
TEST(SuperMatmul, IsExactForManyTokens) {
  Random random(9);
  for (const std::string scheme : {"q4_k", "q5_k", "q6_k"}) {
    const SuperCase c = make_case(scheme, ActKind::g32, 20, 256, true, Fill::random, random);
    expect_exact(c, ActKind::g32, 539, Fill::random, random);
  }
}

// The error of nearest codes for a normal distribution is about what the number of bits implies.
TEST(SuperMatmul, NearestCodesAreNear) {
  Random random(8);
  std::vector<float> values(64 * 512);
  for (float& value : values) value = random.normal();
  for (const auto& [scheme, most] : {std::pair("q4_k", 0.012), {"q5_k", 0.003}, {"q6_k", 0.0008}}) {
    const PackedWeight packed =
        pack_weight(values, 64, 512, *parse_scheme(scheme), ActKind::none, "w");
    double error = 0, energy = 0;
    std::vector<float> row(512);
    for (std::int64_t r = 0; r < 64; ++r) {
      unpack_row(packed.view(), r, row);
      for (std::size_t k = 0; k < row.size(); ++k) {
        const double want = values[static_cast<std::size_t>(r) * 512 + k];
        error += (row[k] - want) * (row[k] - want);
        energy += want * want;
      }
    }
    EXPECT_LT(error / energy, most) << scheme;
    EXPECT_GT(error / energy, most / 20) << scheme;
  }
}

}  // namespace
}  // namespace leq
