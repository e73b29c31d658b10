// A linear layer with correlated inputs from a fixed seed, for methods that use inputs: X has rank
// K/4 plus 0.3 noise, and six channels are eight times as large.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "case_names.h"
#include "quantize/methods/method.h"
#include "quantize/random_values.h"

namespace leq {

inline ChosenCodes with_codes(const Ranges& ranges, const std::vector<std::int16_t>& codes) {
  return {codes, ranges.scales, ranges.scale_mul, ranges.zeros};
}

struct SyntheticLayer {
  std::int64_t rows = 0;     // N
  std::int64_t columns = 0;  // K
  std::vector<float> weight;
  InputStatistics statistics;    // statistics of the calibration tokens
  std::vector<double> held_out;  // X^T X of as many other tokens
};

// Returns X [T][K] from the generator; `stream` selects other tokens of the same distribution.
inline std::vector<float> synthetic_inputs(std::int64_t tokens, std::int64_t columns,
                                           std::uint64_t stream) {
  const std::int64_t rank = columns < 4 ? 1 : columns / 4;
  Random mixing(1), draws(stream);
  std::vector<float> mix(static_cast<std::size_t>(rank * columns));
  for (float& value : mix) value = mixing.normal() / std::sqrt(static_cast<float>(rank));
  std::vector<float> x, hidden(static_cast<std::size_t>(rank));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (float& value : hidden) value = draws.normal();
    for (std::int64_t k = 0; k < columns; ++k) {
      float sum = 0.3f * draws.normal();
      for (std::int64_t r = 0; r < rank; ++r)
        sum += hidden[static_cast<std::size_t>(r)] * mix[static_cast<std::size_t>(r * columns + k)];
      const bool large = k % (columns / 6 + 1) == columns / 12;
      x.push_back(large ? 8 * sum : sum);
    }
  }
  return x;
}

// Computes X^T X by definition, in double.
inline std::vector<double> second_moments(const std::vector<float>& x, std::int64_t columns) {
  std::vector<double> h(static_cast<std::size_t>(columns * columns));
  for (std::size_t t = 0; t < x.size(); t += static_cast<std::size_t>(columns)) {
    for (std::int64_t i = 0; i < columns; ++i) {
      const auto left = static_cast<double>(x[t + static_cast<std::size_t>(i)]);
      double* to = h.data() + i * columns;
      for (std::int64_t j = 0; j < columns; ++j)
        to[j] += left * static_cast<double>(x[t + static_cast<std::size_t>(j)]);
    }
  }
  return h;
}

inline InputStatistics statistics_of(std::vector<double> hessian, std::int64_t columns,
                                     std::int64_t tokens) {
  InputStatistics statistics;
  statistics.columns = columns;
  statistics.tokens = tokens;
  for (std::int64_t k = 0; k < columns; ++k)
    statistics.square_sum.push_back(hessian[static_cast<std::size_t>(k * columns + k)]);
  statistics.hessian = std::move(hessian);
  return statistics;
}

inline SyntheticLayer synthetic_layer(std::int64_t rows, std::int64_t columns,
                                      std::int64_t tokens) {
  SyntheticLayer layer{rows, columns, {}, {}, {}};
  Random random(3);
  for (std::int64_t i = 0; i < rows * columns; ++i) layer.weight.push_back(0.05f * random.normal());
  const std::vector<float> x = synthetic_inputs(tokens, columns, 2);
  layer.statistics = statistics_of(second_moments(x, columns), columns, tokens);
  layer.held_out = second_moments(synthetic_inputs(tokens, columns, 4), columns);
  return layer;
}

inline MethodInput input_of(const SyntheticLayer& layer, const char* scheme) {
  MethodInput input;
  input.name = "test";
  input.weight = layer.weight;
  input.rows = layer.rows;
  input.columns = layer.columns;
  input.scheme = *parse_scheme(scheme);
  input.statistics = &layer.statistics;
  return input;
}

// Types of all widths and of all ways to share a scale.
inline constexpr const char* kLayerSchemes[] = {"int8",      "int8-g64",  "int8-tensor", "int4-g32",
                                                "int4-g128", "int3-g64",  "int2-g32",    "uint8",
                                                "uint4-g64", "uint3-g32", "uint2-g64"};

// Returns d H d^T of every row d of W - Q by definition, in double; Q is computed from the codes as
// a reader does.
inline std::vector<double> proxy_losses(const SyntheticLayer& layer, const ChosenCodes& chosen,
                                        const QuantScheme& scheme,
                                        const std::vector<double>& hessian) {
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : layer.columns;
  const std::int64_t groups = (layer.columns + group - 1) / group;
  std::vector<double> losses, d(static_cast<std::size_t>(layer.columns));
  for (std::int64_t row = 0; row < layer.rows; ++row) {
    for (std::int64_t k = 0; k < layer.columns; ++k) {
      const auto i = static_cast<std::size_t>(row * layer.columns + k);
      const auto range = static_cast<std::size_t>(row * groups + k / group);
      const int zero = chosen.zeros.empty() ? 0 : chosen.zeros[range];
      d[static_cast<std::size_t>(k)] =
          static_cast<double>(layer.weight[i]) -
          static_cast<double>(chosen.scales[range]) * (chosen.codes[i] - zero);
    }
    double loss = 0;
    for (std::size_t k = 0; k < d.size(); ++k) {
      double sum = 0;
      for (std::size_t j = 0; j < d.size(); ++j) sum += hessian[k * d.size() + j] * d[j];
      loss += d[k] * sum;
    }
    losses.push_back(loss);
  }
  return losses;
}

// Returns the loss tr[(W - Q) H (W - Q)^T].
inline double proxy_loss(const SyntheticLayer& layer, const ChosenCodes& chosen,
                         const QuantScheme& scheme, const std::vector<double>& hessian) {
  const auto losses = proxy_losses(layer, chosen, scheme, hessian);
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

}  // namespace leq
