// Tests Operations::linear on the CPU: every scheme and instruction set against exact products.
#include <bit>

#include <gtest/gtest.h>

#include "all_schemes.h"
#include "backend/cpu/cpu_backend.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "errors.h"
#include "matmul_case.h"

namespace leq {
namespace {

using test::Fill;
using test::TestInputs;
using test::TestLinear;

std::vector<std::string> integer_schemes() {
  std::vector<std::string> names;
  for (const QuantScheme& scheme : test::all_schemes()) {
    if (scheme.takes_codes() && !scheme.is_super() && scheme.scaling != Scaling::tensor) {
      names.push_back(scheme_name(scheme));
    }
  }
  return names;
}
const std::vector<std::string> kIntSchemes = integer_schemes();

// Runs the linear over all tokens in batches of `batch` and returns [tokens][outputs]. `before` is
// the initial value of the output rows; columns after the outputs must keep this value.
std::vector<float> run(Backend& backend, const Linear& linear, const TestInputs& x,
                       std::int64_t batch, Epilogue epilogue = Epilogue::none,
                       float before = 7.0f) {
  const std::int64_t width = linear.outputs / (epilogue.is_gated() ? 2 : 1);
  std::vector<float> result;
  for (std::int64_t first = 0; first < x.tokens; first += batch) {
    const std::int64_t count = std::min(batch, x.tokens - first);
    const Rows rows = x.rows(backend, backend.layout().format_for(linear), first, count);
    Rows out = backend.allocate_rows(count, width, RowsFormat{});
    std::fill(out.values, out.values + count * out.value_stride, before);
    backend.linear(rows, count, linear, epilogue, out);
    backend.synchronize();
    for (std::int64_t t = 0; t < count; ++t) {
      const float* row = out.values + t * out.value_stride;
      result.insert(result.end(), row, row + width);
      for (std::int64_t c = width; c < out.value_stride; ++c) EXPECT_EQ(row[c], before);
    }
  }
  return result;
}

// The index of the first number whose bits differ, or -1.
std::int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
      return static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

// Returns the input formats for which each group of the weights is within one group of the inputs.
std::vector<ActKind> acts_of(const std::string& scheme) {
  const QuantScheme parsed = *parse_scheme(scheme);
  if (parsed.scaling == Scaling::group && parsed.group > 32) return {ActKind::row, ActKind::g128};
  return {ActKind::row, ActKind::g128, ActKind::g32};
}

void expect_exact(const std::string& scheme, ActKind act, const std::vector<std::int64_t>& outputs,
                  std::int64_t k, std::int64_t tokens, bool bias, Random& random,
                  Fill fill = Fill::random) {
  const TestLinear test(scheme, act, outputs, k, bias, random, fill);
  const TestInputs x(act, tokens, k, random, fill);
  const std::vector<float> want = test.products(x);
  for (const Isa isa : supported_isas()) {
    for (const Fetch fetch : {Fetch::twice, Fetch::once, Fetch::never}) {
      if (fetch != Fetch::twice && tokens > 16) continue;  // only with few tokens
      const auto backend = make_cpu_backend({.threads = 2, .isa = isa, .fetch = fetch});
      const std::vector<float> got = run(*backend, test.linear, x, tokens);
      const std::int64_t at = first_difference(want, got);
      ASSERT_EQ(at, -1) << scheme << " act " << act_name(act) << " on " << isa_name(isa)
                        << ", fetched " << 2 - static_cast<int>(fetch) << " times, "
                        << test.linear.outputs << " x " << k << ", " << tokens
                        << " tokens: expected " << want[static_cast<std::size_t>(at)] << ", found "
                        << got[static_cast<std::size_t>(at)];
    }
  }
}

TEST(IntMatmul, IsExactForRandomShapesOnEveryIsa) {
  Random random(11);
  for (const std::string& scheme : kIntSchemes) {
    for (const ActKind act : acts_of(scheme)) {
      for (int round = 0; round < 3; ++round) {
        const std::int64_t n = 1 + random.below(200);
        const std::int64_t k = 1 + random.below(600);
        const std::int64_t tokens = 1 + random.below(30);
        expect_exact(scheme, act, {n}, k, tokens, random.below(2) == 0, random);
      }
    }
  }
}

TEST(IntMatmul, IsExactForEveryNumberOfTokensUpTo30) {
  Random random(12);
  for (const std::string scheme :
       {"int8", "int8-g128", "int4-g32", "int3-g64", "int2-g128", "uint8", "uint8-g32",
        "uint3-g128", "mxfp4", "iq4_nl", "nvfp4"}) {
    for (const ActKind act : acts_of(scheme)) {
      for (std::int64_t tokens = 1; tokens <= 30; ++tokens) {
        expect_exact(scheme, act, {70}, 200, tokens, true, random);
      }
    }
  }
}

// Token counts are around the tiles of 16 and 32 tokens and around the blocks of 256.
TEST(IntMatmul, IsExactAroundTilesAndBlocksOfTokens) {
  Random random(28);
  for (const std::string scheme :
       {"int8", "int8-g128", "int8-g32", "int4-g128", "int4-g32", "int3-g64", "int2-g128", "uint8",
        "uint8-g64", "uint4-g128", "mxfp4", "iq4_nl", "nvfp4"}) {
    for (const ActKind act : acts_of(scheme)) {
      for (const std::int64_t tokens : {31, 32, 33, 48, 65, 257}) {
        expect_exact(scheme, act, {66}, 17 + random.below(300), tokens, tokens == 48, random);
      }
    }
  }
}

TEST(IntMatmul, IsExactFor600Tokens) {
  Random random(13);
  for (const std::string scheme : {"int8", "int8-g64", "int4-g128", "int3-g32", "int2-g64", "uint8",
                                   "uint8-g128", "uint2-g32", "iq4_nl", "nvfp4"}) {
    for (const ActKind act : acts_of(scheme)) {
      expect_exact(scheme, act, {65}, 136, 600, false, random);
    }
  }
}

// These rows are longer than one piece of a panel (up to 1,024 columns) of the grouped kernels.
TEST(IntMatmul, IsExactForLongRows) {
  Random random(14);
  for (const std::string& scheme : kIntSchemes) {
    for (const ActKind act : acts_of(scheme)) {
      expect_exact(scheme, act, {66}, 1300, 18, true, random);
    }
  }
}

// Few tokens after many: memory between pieces of a row has the numbers of the product before.
TEST(IntMatmul, IsExactForFewTokensOfLongRowsAfterMany) {
  constexpr std::int64_t kColumns = 1100, kMany = 30;
  Random random(31);
  for (const std::string scheme :
       {"int8", "int8-g128", "int4-g32", "int3-g64", "int2-g128", "uint8", "uint8-g32",
        "uint3-g128", "mxfp4", "iq4_nl", "nvfp4"}) {
    for (const ActKind act : acts_of(scheme)) {
      const TestLinear test(scheme, act, {70}, kColumns, true, random);
      const TestInputs many(act, kMany, kColumns, random);
      for (const Isa isa : supported_isas()) {
        const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
        for (std::int64_t tokens = 1; tokens <= 13; ++tokens) {
          (void)run(*backend, test.linear, many, kMany);
          const TestInputs x(act, tokens, kColumns, random);
          EXPECT_EQ(first_difference(test.products(x), run(*backend, test.linear, x, tokens)), -1)
              << scheme << " act " << act_name(act) << " on " << isa_name(isa) << ", " << tokens;
        }
      }
    }
  }
}

// AMX processes rows of up to 1,024 columns as a whole for each strip of 64 tokens, and longer rows
// piece by piece for all tokens. Both lengths are tested with many tokens; two threads split so few
// outputs into blocks of 68 tokens.
TEST(IntMatmul, IsExactForManyTokensWithLongRows) {
  Random random(29);
  for (const std::string scheme :
       {"int8", "int8-g128", "int4-g128", "int3-g64", "int2-g32", "uint8", "uint4-g32"}) {
    for (const ActKind act : acts_of(scheme)) {
      for (const std::int64_t k : {1024, 1040}) {
        expect_exact(scheme, act, {65}, k, 270, act == ActKind::row, random);
      }
    }
  }
}

TEST(IntMatmul, DoesNotOverflowAtTheLargestCodesAndColumns) {
  Random random(15);
  for (const std::string& scheme : kIntSchemes) {
    for (const ActKind act : acts_of(scheme)) {
      for (const std::int64_t tokens : {1, 17}) {
        expect_exact(scheme, act, {3}, 28672, tokens, false, random, Fill::extreme);
      }
    }
  }
}

TEST(IntMatmul, JoinsSegmentsWithoutGaps) {
  Random random(16);
  for (const std::string scheme : {"int8", "int4-g128", "int8-g128", "uint3-g64", "uint8"}) {
    expect_exact(scheme, ActKind::row, {100, 20, 20}, 128, 5, true, random);
    expect_exact(scheme, ActKind::g128, {64, 1, 130}, 260, 13, false, random);
  }
}

TEST(FloatMatmul, FollowsTheSixteenLaneChainOnEveryIsa) {
  Random random(17);
  for (const std::string scheme : {"f32", "f16", "bf16"}) {
    for (int round = 0; round < 12; ++round) {
      const std::int64_t n = 1 + random.below(200);
      const std::int64_t k = 1 + random.below(600);
      expect_exact(scheme, ActKind::none, {n}, k, 1 + random.below(20), random.below(2) == 0,
                   random);
    }
    expect_exact(scheme, ActKind::none, {30, 7, 90}, 48, 100, true, random);
  }
}

// The kernel's f32 sums are as close to the exact product as sums of this length can be.
TEST(FloatMatmul, IsCloseToDoublePrecision) {
  constexpr double kTolerance = 3e-7;  // times the sum of absolute products; measured: 1e-7
  Random random(18);
  const TestLinear test("f32", ActKind::none, {50}, 2000, false, random);
  const TestInputs x(ActKind::none, 4, 2000, random);
  const auto backend = make_cpu_backend({.threads = 1, .isa = supported_isas().back()});
  const std::vector<float> got = run(*backend, test.linear, x, 4);
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t n = 0; n < 50; ++n) {
      double sum = 0.0, size = 0.0;
      for (std::int64_t c = 0; c < 2000; ++c) {
        const double product = static_cast<double>(test.weights[0]->number(n, c)) *
                               static_cast<double>(x.number(t, c));
        sum += product;
        size += std::abs(product);
      }
      EXPECT_NEAR(got[static_cast<std::size_t>(t * 50 + n)], sum, kTolerance * size);
    }
  }
}

TEST(WeightOnlyMatmul, IsTheFloatChainOverDequantizedWeights) {
  Random random(19);
  for (const std::string& scheme : kIntSchemes) {
    for (const std::int64_t tokens : {1, 20}) {
      expect_exact(scheme, ActKind::none, {70}, 1 + random.below(700), tokens, tokens == 1, random);
    }
  }
}

TEST(Linear, DoesNotDependOnThreadsOrBatches) {
  Random random(20);
  struct {
    const char* scheme;
    ActKind act;
  } const cases[] = {{"int8", ActKind::row},      {"int8", ActKind::g128},
                     {"int4-g128", ActKind::row}, {"int8-g128", ActKind::g128},
                     {"int4-g64", ActKind::none}, {"f16", ActKind::none},
                     {"f32", ActKind::none}};
  for (const auto& c : cases) {
    const TestLinear test(c.scheme, c.act, {300, 70}, 530, true, random);
    const TestInputs x(c.act, 130, 530, random);
    const std::vector<float> want = test.products(x);
    for (const int threads : {1, 2, 4, 16}) {
      const auto backend = make_cpu_backend({.threads = threads, .isa = supported_isas().back()});
      for (const std::int64_t batch : {1, 7, 64, 130}) {
        EXPECT_EQ(first_difference(want, run(*backend, test.linear, x, batch)), -1)
            << c.scheme << " act " << act_name(c.act) << ", " << threads << " threads, batches of "
            << batch;
      }
    }
  }
}

TEST(Linear, AddsToTheResidual) {
  Random random(21);
  for (const std::int64_t tokens : {1, 40}) {
    const TestLinear test("int8", ActKind::g128, {150}, 300, true, random);
    const TestInputs x(ActKind::g128, tokens, 300, random);
    std::vector<float> want = test.products(x);
    for (float& y : want) y = 7.0f + y;
    for (const Isa isa : supported_isas()) {
      const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
      EXPECT_EQ(first_difference(want, run(*backend, test.linear, x, tokens, Epilogue::add)), -1)
          << isa_name(isa);
    }
  }
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }
double clamped_swiglu(double gate, double up) {
  const double g = std::min(gate, 7.0), u = std::min(7.0, std::max(-7.0, up));
  return g / (1.0 + std::exp(-1.702 * g)) * (u + 1.0);
}
double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

// The library's own exp has an error of 1e-7; the rest of the tolerance is for f32 roundings.
constexpr double kActivationTolerance = 2e-6;

TEST(Linear, AppliesActivationsAndGates) {
  Random random(22);
  for (const std::int64_t width : {64, 100, 128, 300, 320}) {
    for (const std::int64_t tokens : {1, 20}) {
      const TestLinear gated("int8", ActKind::row, {width, width}, 96, true, random);
      const TestLinear plain("int8", ActKind::row, {width}, 96, true, random);
      const TestInputs x(ActKind::row, tokens, 96, random);
      const auto backend = make_cpu_backend({.threads = 2, .isa = supported_isas().back()});
      const auto two = gated.products(x);
      const auto one = plain.products(x);
      const auto clamped =
          run(*backend, gated.linear, x, tokens, Epilogue::gated(Activation::clamped_swiglu));
      for (std::int64_t i = 0; i < tokens * width; ++i) {
        const auto at = static_cast<std::size_t>(i / width * 2 * width + i % width);
        const double want = clamped_swiglu(two[at], two[at + static_cast<std::size_t>(width)]);
        EXPECT_NEAR(clamped[static_cast<std::size_t>(i)], want,
                    kActivationTolerance * std::max(1.0, std::abs(want)));
      }
      for (const Activation f : {Activation::silu, Activation::gelu_tanh}) {
        const auto by = [f](double y) { return f == Activation::silu ? silu(y) : gelu(y); };
        const auto product = run(*backend, gated.linear, x, tokens, Epilogue::gated(f));
        const auto bent = run(*backend, plain.linear, x, tokens, Epilogue::activated(f));
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t c = 0; c < width; ++c) {
            const double gate = two[static_cast<std::size_t>(t * 2 * width + c)];
            const double up = two[static_cast<std::size_t>(t * 2 * width + width + c)];
            const auto at = static_cast<std::size_t>(t * width + c);
            EXPECT_NEAR(product[at], by(gate) * up,
                        kActivationTolerance * std::max(1.0, std::abs(gate * up)));
            EXPECT_NEAR(bent[at], by(one[at]),
                        kActivationTolerance * std::max(1.0, std::abs(double{one[at]})));
          }
        }
      }
    }
  }
}

// Quantizes one group of values by the documented rule; returns the scale and writes the codes.
float quantize(const float* x, std::int64_t count, int* codes) {
  float largest = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  if (largest < 1e-12f) {
    std::fill(codes, codes + count, 0);
    return 1.0f;
  }
  const float inverse = 127.0f / largest;
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = std::clamp(static_cast<int>(std::nearbyint(x[i] * inverse)), -127, 127);
  }
  return largest / 127.0f;
}

void expect_quantized(const Rows& out, std::int64_t tokens) {
  const std::int64_t of_scale = test::columns_of_scale(out.format.act);
  const std::int64_t group = of_scale > 0 ? of_scale : out.width;
  const int offset = out.format.offset_codes ? 128 : 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<int> row(static_cast<std::size_t>(test::up_to(out.width, 128)), 0);
    for (std::int64_t c = 0; c < out.width; c += group) {
      const float scale = quantize(out.values + t * out.value_stride + c,
                                   std::min(group, out.width - c), row.data() + c);
      ASSERT_EQ(out.scales[t * out.scale_stride + c / group], scale) << "token " << t;
    }
    for (std::size_t c = 0; c < row.size(); ++c) {
      ASSERT_EQ(out.codes[t * out.code_stride + static_cast<std::int64_t>(c)],
                static_cast<std::uint8_t>(row[c] + offset))
          << "token " << t << " column " << c;
    }
    for (std::int64_t c = 0; out.format.sum_group > 0 && c < test::up_to(out.width, 128);
         c += out.format.sum_group) {
      int sum = 0;
      for (std::int64_t i = c; i < c + out.format.sum_group; ++i) {
        sum += row[static_cast<std::size_t>(i)];
      }
      ASSERT_EQ(out.sums[t * out.sum_stride + c / out.format.sum_group], sum);
    }
  }
}

TEST(Linear, QuantizesItsOutputAsTheConsumerWants) {
  Random random(23);
  const RowsFormat formats[] = {
      {.values = true, .act = ActKind::g128, .offset_codes = true, .sum_group = 0},
      {.values = true, .act = ActKind::g128, .offset_codes = false, .sum_group = 32},
      {.values = true, .act = ActKind::g32, .offset_codes = true, .sum_group = 0},
      {.values = true, .act = ActKind::g32, .offset_codes = false, .sum_group = 32},
      {.values = true, .act = ActKind::row, .offset_codes = true, .sum_group = 0},
      {.values = true, .act = ActKind::row, .offset_codes = false, .sum_group = 128}};
  for (const RowsFormat& format : formats) {
    for (const std::int64_t width : {64, 200, 256, 330}) {
      const TestLinear gated("int8", ActKind::row, {width, width}, 96, true, random);
      const TestLinear plain("int8", ActKind::row, {width}, 96, false, random);
      const TestInputs x(ActKind::row, 9, 96, random);
      for (const Isa isa : supported_isas()) {
        const auto backend = make_cpu_backend({.threads = 3, .isa = isa});
        const Rows rows = x.rows(*backend, backend->layout().format_for(plain.linear), 0, 9);
        Rows out = backend->allocate_rows(9, width, format);
        backend->linear(rows, 9, gated.linear, Epilogue::gated(Activation::silu), out);
        expect_quantized(out, 9);
        backend->linear(rows, 9, plain.linear, Epilogue::activated(Activation::gelu_tanh), out);
        expect_quantized(out, 9);
        backend->linear(rows, 9, plain.linear, Epilogue::none, out);
        expect_quantized(out, 9);
      }
    }
  }
}

// The backend need not store f32 values if only codes with scales by groups are required.
TEST(Linear, QuantizesWithoutKeepingValues) {
  Random random(24);
  const TestLinear gated("int4-g128", ActKind::row, {300, 300}, 256, false, random);
  const TestInputs x(ActKind::row, 5, 256, random);
  const auto backend = make_cpu_backend({.threads = 2, .isa = supported_isas().back()});
  const Rows rows = x.rows(*backend, backend->layout().format_for(gated.linear), 0, 5);
  RowsFormat format{.values = true, .act = ActKind::g128, .offset_codes = true, .sum_group = 0};
  Rows with = backend->allocate_rows(5, 300, format);
  format.values = false;
  Rows without = backend->allocate_rows(5, 300, format);
  backend->linear(rows, 5, gated.linear, Epilogue::gated(Activation::silu), with);
  backend->linear(rows, 5, gated.linear, Epilogue::gated(Activation::silu), without);
  for (std::int64_t t = 0; t < 5; ++t) {
    EXPECT_EQ(0, std::memcmp(with.codes + t * with.code_stride,
                             without.codes + t * without.code_stride, 384));
    EXPECT_EQ(0, std::memcmp(with.scales + t * with.scale_stride,
                             without.scales + t * without.scale_stride, 3 * sizeof(float)));
  }
}

TEST(Linear, NamesTheRowOfAValueThatIsNotFinite) {
  Random random(25);
  for (const ActKind act : {ActKind::row, ActKind::g128}) {
    const TestLinear plain("f32", ActKind::none, {200}, 64, false, random);
    TestInputs x(ActKind::none, 6, 64, random);
    x.numbers[4 * 64 + 3] = std::numeric_limits<float>::infinity();
    const auto backend = make_cpu_backend({.threads = 2, .isa = supported_isas().back()});
    const Rows rows = x.rows(*backend, backend->layout().format_for(plain.linear), 0, 6);
    const RowsFormat format{.values = true, .act = act, .offset_codes = true, .sum_group = 0};
    Rows out = backend->allocate_rows(6, 200, format);
    test::expect_error(
        [&] {
          backend->linear(rows, 6, plain.linear, Epilogue::activated(Activation::gelu_tanh), out);
        },
        {"layers.5.test", "token 4"});
  }
}

TEST(Linear, RefusesInputsInAnotherFormat) {
  Random random(26);
  const TestLinear test("int8", ActKind::row, {64}, 128, false, random);
  const TestInputs x(ActKind::row, 2, 128, random);
  const auto backend = make_cpu_backend({.threads = 1, .isa = supported_isas().back()});
  const RowsFormat signed_codes{
      .values = false, .act = ActKind::row, .offset_codes = false, .sum_group = 0};
  const Rows rows = x.rows(*backend, signed_codes, 0, 2);
  Rows out = backend->allocate_rows(2, 64, RowsFormat{});
  EXPECT_THROW(backend->linear(rows, 2, test.linear, Epilogue::none, out), Error);
  const Rows narrow = backend->allocate_rows(2, 127, backend->layout().format_for(test.linear));
  EXPECT_THROW(backend->linear(narrow, 2, test.linear, Epilogue::none, out), Error);
  const Rows right = x.rows(*backend, backend->layout().format_for(test.linear), 0, 2);
  Rows wide = backend->allocate_rows(2, 65, RowsFormat{});
  EXPECT_THROW(backend->linear(right, 2, test.linear, Epilogue::none, wide), Error);
}

TEST(Linear, DescribesItsKernel) {
  Random random(27);
  const TestLinear test("int4-g128", ActKind::g128, {64}, 128, false, random);
  const auto backend = make_cpu_backend({.threads = 1, .isa = Isa::portable});
  EXPECT_EQ(backend->describe(test.linear), "portable int4-g128 x int8 groups of 128, 1x64");
}

}  // namespace
}  // namespace leq
