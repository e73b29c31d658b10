// Matmuls of f32 inputs on tensor cores for tests: weights of every kind, the outputs of any
// kernel, and the allowed error compared with double.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "cuda/kernels/matmul/float_matmul.h"
#include "float_matmul_case.h"

namespace leq::LEQ_GPU {

struct PieceCase {
  std::optional<FloatType> type;  // nullopt: integer codes
  IntCase shape;
};

inline void PrintTo(const PieceCase& c, std::ostream* out) {
  if (c.type) *out << (*c.type == FloatType::f16 ? "f16 of " : "bf16 of ");
  PrintTo(c.shape, out);
}

inline void launch(const FloatMatmul& a, std::optional<FloatTile> tile) {
  if (!tile) return launch_float_matmul(a, test_stream());
  launch_float_gemm(a, *tile, test_stream());
}
inline void launch(const WeightOnlyMatmul& a, std::optional<FloatTile> tile) {
  if (!tile) return launch_weight_only_matmul(a, test_stream());
  launch_float_gemm(a, *tile, test_stream());
}

// A problem with float or integer weights, which computes its outputs on the device.
class Problem {
 public:
  explicit Problem(const PieceCase& c) : c_(c), codes_(c.shape) {
    for (const int rows : c.shape.rows) {
      if (c.type) floats_.emplace_back(*c.type, rows, c.shape.columns);
    }
  }

  int terms() const { return c_.type == FloatType::bf16 ? 3 : 2; }
  std::int64_t stride() const { return float_stride(c_.shape.outputs()); }
  float before() const { return 0.25f; }
  double weight(std::size_t segment, int row, int k) const {
    if (!c_.type) return codes_.weight(segment, row, k);
    const FloatData& w = floats_[segment];
    return w.numbers[static_cast<std::size_t>(row * w.stride + k)];
  }
  double bias(std::size_t segment, int row) const {
    return c_.type ? floats_[segment].bias[static_cast<std::size_t>(row)]
                   : codes_.bias(segment, row);
  }

  // Returns outputs [tokens][stride] of rows from `first` on; no `tile`: the backend selects one.
  std::vector<float> run(Inputs& x, int first, int tokens, std::optional<FloatTile> tile) const {
    const DeviceArray<float> out(
        std::vector<float>(static_cast<std::size_t>(tokens * stride()), before()));
    const auto set = [&](auto& a) {
      a.tokens = tokens;
      a.columns = c_.shape.columns;
      a.x = x.terms(terms(), first, tokens);
      a.finish = c_.shape.finish;
      a.out = {out.data(), stride()};
    };
    if (c_.type) {
      FloatMatmul a;
      for (const FloatData& w : floats_) a.segments[a.segment_count++] = w.segment();
      set(a);
      launch(a, tile);
    } else {
      WeightOnlyMatmul a;
      for (std::size_t i = 0; i < c_.shape.rows.size(); ++i) {
        a.segments[a.segment_count++] = codes_.segment(i);
      }
      set(a);
      launch(a, tile);
    }
    return out.host();
  }
  std::vector<float> run(Inputs& x) const { return run(x, 0, x.tokens(), {}); }

 private:
  PieceCase c_;
  IntMatmulData codes_;
  std::vector<FloatData> floats_;
};

// y before its finish (see near_sum), and the allowed error of y.
struct Near {
  double y, error;
};

// Allows for f32 sums, and inputs that are off by 2^-23 relatively or by 2^-39 of the largest.
inline Near near_sum(const Problem& problem, const Inputs& x, int columns, int token,
                     std::size_t segment, int row) {
  constexpr double kOfProducts = 2e-6, kOfLargest = 0x1p-39, kSubnormal = 0x1p-147;
  Near near = {0, 0};
  double weights = 0;
  for (int k = 0; k < columns; ++k) {
    const double w = problem.weight(segment, row, k), product = w * x.at(token, k);
    near.y += product;
    near.error += std::abs(product) * kOfProducts;
    weights += std::abs(w);
  }
  near.error += weights * x.largest(token) * kOfLargest + kSubnormal;
  near.y += problem.bias(segment, row);
  near.error += std::abs(near.y) * 0x1p-23;
  return near;
}

inline double silu_of(double x) { return x / (1 + std::exp(-x)); }

// Returns y and its error after the finish. Slopes of silu and gelu are at most 1.13.
inline Near finished(Finish finish, const Near& y, const Near& up, double before) {
  constexpr double kSlope = 1.13, kRounding = 1e-6;
  switch (finish) {
    case Finish::add:
      return {before + y.y, y.error + kRounding * std::abs(before + y.y)};
    case Finish::gelu:
    case Finish::silu: {
      const double value =
          finish == Finish::silu ? silu_of(y.y) : gelu_new(static_cast<float>(y.y));
      return {value, y.error * kSlope + kRounding * std::abs(y.y)};
    }
    case Finish::swiglu:
    case Finish::geglu: {
      const double gate =
          finish == Finish::swiglu ? silu_of(y.y) : gelu_new(static_cast<float>(y.y));
      return {gate * up.y,
              (y.error * kSlope + kRounding * std::abs(y.y)) * (std::abs(up.y) + up.error) +
                  std::abs(gate) * up.error};
    }
    default:
      return y;
  }
}

inline void expect_near(const PieceCase& c, const Problem& problem, const Inputs& x,
                        const std::vector<float>& found) {
  const bool paired = is_gated(c.shape.finish);
  for (int t = 0; t < x.tokens(); ++t) {
    std::int64_t at = t * problem.stride();
    for (std::size_t s = 0; s < (paired ? 1 : c.shape.rows.size()); ++s) {
      for (int row = 0; row < c.shape.rows[s]; ++row, ++at) {
        const auto sum = [&](std::size_t segment) {
          return near_sum(problem, x, c.shape.columns, t, segment, row);
        };
        const Near want =
            finished(c.shape.finish, sum(s), paired ? sum(1) : Near{0, 0}, problem.before());
        ASSERT_NEAR(found[static_cast<std::size_t>(at)], want.y, want.error)
            << "token " << t << ", segment " << s << ", row " << row;
      }
    }
    // Checks that columns after the last output were not written.
    for (; at < (t + 1) * problem.stride(); ++at) {
      ASSERT_EQ(found[static_cast<std::size_t>(at)], problem.before());
    }
  }
}

inline PieceCase f16(IntCase shape) { return {FloatType::f16, std::move(shape)}; }
inline PieceCase bf16(IntCase shape) { return {FloatType::bf16, std::move(shape)}; }
inline PieceCase codes(IntCase shape) { return {std::nullopt, std::move(shape)}; }

// Rows that are hard for one scale: an outlier among small numbers, zeros, subnormals, FLT_MAX.
inline Inputs odd_inputs(int columns) {
  auto numbers = Inputs::normal_numbers(6 * columns);
  const auto row = [&](int t) { return numbers.begin() + t * columns; };
  for (int k = 0; k < columns; ++k) {
    row(0)[k] *= 1e-3f;
    row(1)[k] = 0;
    row(2)[k] *= 1e-40f;
    row(3)[k] *= 1e37f;
    row(4)[k] *= 1e-30f;
    row(5)[k] = k % 2 == 0 ? -1.0f : std::ldexp(1.0f, -k % 60);
  }
  row(0)[5] = 1e6f;
  return {std::move(numbers), 6, columns};
}

}  // namespace leq::LEQ_GPU
