// Row kernels of each instruction set must give the portable kernel's bits; these are compared with
// sums in double.
#include "backend/cpu/kernels/kernels.h"
#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "naive_norm.h"

namespace leq::cpu {
namespace {

// The widths are below, at and above one and two registers, and common widths of models.
constexpr std::int64_t kWidths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 80, 100, 257, 2048};
// A norm adds n values in 256 chains that round by 2^-24 per step; here n is at most 2048.
constexpr double kNormTolerance = 2e-6;

std::vector<float> random_row(std::int64_t n, std::uint64_t seed, float scale = 3.0f) {
  Random random(seed);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& x : row) x = random.normal() * scale;
  return row;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const char* what,
                      Isa isa) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
        << what << " " << isa_name(isa) << " n=" << a.size() << " column " << i << ": " << a[i]
        << " and " << b[i];
  }
}

TEST(RowKernels, EveryIsaGivesThePortableBits) {
  const RowKernels& want = row_kernels(Isa::portable);
  for (const Isa isa : supported_isas()) {
    const RowKernels& have = row_kernels(isa);
    for (const std::int64_t n : kWidths) {
      const auto x = random_row(n, 1), y = random_row(n, 2), z = random_row(n, 3);
      const auto compare = [&](const char* what, auto&& apply) {
        std::vector<float> a(x.size()), b(x.size());
        apply(want, a.data());
        apply(have, b.data());
        expect_same_bits(a, b, what, isa);
      };
      compare("add", [&](const RowKernels& k, float* out) {
        std::copy(x.begin(), x.end(), out);
        k.add(y.data(), n, out);
      });
      compare("multiply", [&](const RowKernels& k, float* out) {
        std::copy(x.begin(), x.end(), out);
        k.multiply(y.data(), n, out);
        for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(out[i], x[i] * y[i]);
      });
      compare("rms", [&](const RowKernels& k, float* out) {
        k.rms_norm(x.data(), y.data(), 1e-5f, n, out);
      });
      compare("layer", [&](const RowKernels& k, float* out) {
        k.layer_norm(x.data(), y.data(), z.data(), 1e-5f, n, out);
      });
      for (const std::size_t f : {0, 1}) {
        compare("gated",
                [&](const RowKernels& k, float* out) { k.gated[f](x.data(), y.data(), n, out); });
        compare("activated",
                [&](const RowKernels& k, float* out) { k.activated[f](x.data(), n, out); });
      }
    }
  }
}

TEST(RowKernels, CodesAndTheirSumsAreEqual) {
  const RowKernels& want = row_kernels(Isa::portable);
  for (const Isa isa : supported_isas()) {
    const RowKernels& have = row_kernels(isa);
    for (const std::int64_t n : kWidths) {
      const auto x = random_row(n, 7 + n);
      ASSERT_EQ(want.absmax(x.data(), n), have.absmax(x.data(), n));
      for (const int offset : {0, 128}) {
        // One byte after the row detects a store beyond the end.
        std::vector<std::uint8_t> a(x.size() + 1, 77), b(x.size() + 1, 77);
        const int wanted = want.quantize(x.data(), n, 40.0f, offset, a.data());
        const int found = have.quantize(x.data(), n, 40.0f, offset, b.data());
        ASSERT_EQ(a, b) << isa_name(isa) << " n=" << n << " offset " << offset;
        ASSERT_EQ(b.back(), 77);
        int sum = 0;
        for (std::int64_t k = 0; k < n; ++k) {
          const double exact = std::nearbyint(static_cast<double>(x[k] * 40.0f));
          const int code = static_cast<int>(std::clamp(exact, -127.0, 127.0));
          ASSERT_EQ(code, static_cast<std::int8_t>(a[k] - offset)) << "n=" << n << " k=" << k;
          sum += code;
        }
        ASSERT_EQ(wanted, sum) << "n=" << n;
        ASSERT_EQ(found, sum) << isa_name(isa) << " n=" << n;
      }
    }
  }
}

// Tests every width up to three blocks of lanes, which covers every tail length of every ISA.
TEST(RowKernels, NormsHaveTheWrittenOrderAtEveryWidth) {
  for (std::int64_t n = 1; n <= 3 * 256 + 17; ++n) {
    const auto x = random_row(n, 21), gain = random_row(n, 22), beta = random_row(n, 23);
    const auto rms = test::naive_rms_norm(x, gain, 1e-5f);
    const auto layer = test::naive_layer_norm(x, gain, beta, 1e-5f);
    for (const Isa isa : supported_isas()) {
      const RowKernels& kernels = row_kernels(isa);
      std::vector<float> found(x.size());
      kernels.rms_norm(x.data(), gain.data(), 1e-5f, n, found.data());
      expect_same_bits(found, rms, "rms", isa);
      kernels.layer_norm(x.data(), gain.data(), beta.data(), 1e-5f, n, found.data());
      expect_same_bits(found, layer, "layer", isa);
    }
  }
}

TEST(RowKernels, NormsAgreeWithDouble) {
  for (const Isa isa : supported_isas()) {
    const RowKernels& kernels = row_kernels(isa);
    for (const std::int64_t n : kWidths) {
      const auto x = random_row(n, 11), gain = random_row(n, 12), beta = random_row(n, 13);
      const auto count = static_cast<double>(n);
      double sum = 0, squares = 0;
      for (const float v : x) sum += v;
      const double mean = sum / count;
      double differences = 0;
      for (const float v : x) {
        squares += double{v} * v;
        differences += (v - mean) * (v - mean);
      }
      std::vector<float> rms(x), layer(x);  // in place
      kernels.rms_norm(rms.data(), gain.data(), 1e-5f, n, rms.data());
      kernels.layer_norm(layer.data(), gain.data(), beta.data(), 1e-5f, n, layer.data());
      for (std::int64_t k = 0; k < n; ++k) {
        const double by_rms = x[k] / std::sqrt(squares / count + 1e-5) * gain[k];
        ASSERT_NEAR(rms[k], by_rms, kNormTolerance * (1 + std::abs(by_rms))) << n << " " << k;
        if (n == 1) continue;  // x - mean is 0, divided by sqrt(eps)
        const double by_layer =
            (x[k] - mean) / std::sqrt(differences / count + 1e-5) * gain[k] + beta[k];
        ASSERT_NEAR(layer[k], by_layer, 10 * kNormTolerance * (1 + std::abs(by_layer)));
      }
    }
  }
}

TEST(RowKernels, AbsmaxShowsInfinityAndNaN) {
  for (const Isa isa : supported_isas()) {
    for (const std::int64_t n : kWidths) {
      for (const float bad :
           {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
            std::numeric_limits<float>::quiet_NaN()}) {
        auto x = random_row(n, 5);
        x[static_cast<std::size_t>(n / 2)] = bad;
        ASSERT_FALSE(std::isfinite(row_kernels(isa).absmax(x.data(), n))) << isa_name(isa);
      }
    }
  }
}

TEST(RowKernels, ActivationsAtTheEndsOfTheirRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0.0f,   -0.0f,   86.9f, -86.9f, 87.5f,    -87.5f, 88.5f, -88.5f, 1e-30f,
                          500.0f, -500.0f, 3e38f, -3e38f, infinity, 1.0f,   -1.0f, 0.5f};
  const std::vector<float> ones(x.size(), 1.0f);
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> want(x.size()), have(x.size());
  row_kernels(Isa::portable).gated[0](x.data(), ones.data(), n, want.data());
  EXPECT_EQ(want[9], 500.0f);
  EXPECT_EQ(want[10], -0.0f);
  EXPECT_NEAR(want[14], 0.7310585786, 1e-7);
  for (const Isa isa : supported_isas()) {
    row_kernels(isa).gated[0](x.data(), ones.data(), n, have.data());
    expect_same_bits(want, have, "swiglu", isa);
  }
  row_kernels(Isa::portable).activated[1](x.data(), n - 4, want.data());
  EXPECT_NEAR(want[2], 86.9, 1e-4);
  for (const Isa isa : supported_isas()) {
    row_kernels(isa).activated[1](x.data(), n - 4, have.data());
    want.resize(x.size() - 4);
    have.resize(x.size() - 4);
    expect_same_bits(want, have, "gelu", isa);
  }
}

}  // namespace
}  // namespace leq::cpu
