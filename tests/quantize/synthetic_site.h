// Weights and inputs that are hard in known ways, and calibration statistics by plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "quantize/calibration/calibration.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"
#include "quantize/rewrites/fold.h"

namespace leq::test {

inline std::vector<float> normals(std::uint64_t seed, std::int64_t count, float size = 1.0f) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = size * random.normal();
  return values;
}

// Returns bell-shaped numbers with long tails, like trained weights.
inline std::vector<float> heavy_tailed(std::uint64_t seed, std::int64_t count) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    const float x = random.normal();
    value = 0.02f * x * (0.6f + 0.4f * x * x);
  }
  return values;
}

// Returns X [tokens][K]: K/4 hidden directions plus 0.3 noise, six channels eight times as large.
inline std::vector<float> correlated_inputs(std::uint64_t seed, std::int64_t tokens,
                                            std::int64_t columns) {
  const std::int64_t rank = columns / 4;
  const auto hidden = normals(seed, tokens * rank);
  const auto mix = normals(seed + 1, rank * columns, 1 / std::sqrt(static_cast<float>(rank)));
  auto x = normals(seed + 2, tokens * columns, 0.3f);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t r = 0; r < rank; ++r) {
      const float h = hidden[static_cast<std::size_t>(t * rank + r)];
      for (std::int64_t k = 0; k < columns; ++k) {
        x[static_cast<std::size_t>(t * columns + k)] +=
            h * mix[static_cast<std::size_t>(r * columns + k)];
      }
    }
    for (std::int64_t i = 0; i < 6; ++i) {
      x[static_cast<std::size_t>(t * columns + (7 + 11 * i) % columns)] *= 8;
    }
  }
  return x;
}

inline InputStatistics statistics_of(const std::vector<float>& x, std::int64_t columns,
                                     std::int64_t samples = 128) {
  InputStatistics statistics;
  const auto k = static_cast<std::size_t>(columns);
  statistics.columns = columns;
  statistics.tokens = std::ssize(x) / columns;
  statistics.absmax.resize(k);
  statistics.abs_sum.resize(k);
  statistics.sum.resize(k);
  statistics.square_sum.resize(k);
  statistics.hessian.resize(k * k);
  for (std::size_t t = 0; t < x.size(); t += k) {
    for (std::size_t i = 0; i < k; ++i) {
      const double value = static_cast<double>(x[t + i]);
      statistics.absmax[i] = std::max(statistics.absmax[i], std::fabs(x[t + i]));
      statistics.abs_sum[i] += std::fabs(value);
      statistics.sum[i] += value;
      statistics.square_sum[i] += value * value;
      for (std::size_t j = 0; j < k; ++j) {
        statistics.hessian[i * k + j] += value * static_cast<double>(x[t + j]);
      }
    }
  }
  const auto count = std::min(x.size(), static_cast<std::size_t>(samples) * k);
  statistics.samples.assign(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count));
  return statistics;
}

inline MethodInput method_input(const std::vector<float>& weight, std::int64_t columns,
                                std::string_view scheme) {
  MethodInput input;
  input.name = "w";
  input.weight = weight;
  input.columns = columns;
  input.rows = std::ssize(weight) / columns;
  input.scheme = *parse_scheme(scheme);
  return input;
}

inline std::vector<float> values_of(const MethodInput& input, const ChosenCodes& chosen) {
  return dequantize(chosen, input.rows, input.columns, input.scheme);
}

// Returns the values of the codes that a method chooses.
inline std::vector<float> rounded_by(std::string_view method, const MethodInput& input) {
  return values_of(input, require_method(method).choose(input).codes);
}

// Returns sum (a - b)^2 / sum a^2, computed in double.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    error += d * d;
    energy += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return error / energy;
}

// Returns ||X (A - B)^T||^2 / ||X A^T||^2 over all tokens, computed from the outputs.
inline double output_error(const std::vector<float>& x, const std::vector<float>& a,
                           const std::vector<float>& b, std::int64_t columns) {
  const auto k = static_cast<std::size_t>(columns);
  double error = 0, energy = 0;
  for (std::size_t n = 0; n < a.size(); n += k) {
    for (std::size_t t = 0; t < x.size(); t += k) {
      double y = 0, d = 0;
      for (std::size_t i = 0; i < k; ++i) {
        const double value = static_cast<double>(x[t + i]);
        y += value * static_cast<double>(a[n + i]);
        d += value * (static_cast<double>(a[n + i]) - static_cast<double>(b[n + i]));
      }
      error += d * d;
      energy += y * y;
    }
  }
  return error / energy;
}

// A site of one or more consumers with a scale for each channel.
struct SyntheticSite {
  std::vector<std::vector<float>> weights;
  std::vector<std::string> names = {"v", "o", "up", "down"};
  std::vector<std::int32_t> scale_of;
  InputStatistics statistics;

  Site view(ThreadPool* pool = nullptr) const {
    Site site;
    site.name = "site";
    site.columns = statistics.columns;
    site.scale_of = scale_of;
    site.scales = *std::max_element(scale_of.begin(), scale_of.end()) + 1;
    site.statistics = &statistics;
    site.pool = pool;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      site.consumers.push_back(
          {names.at(i), weights[i], std::ssize(weights[i]) / statistics.columns});
    }
    return site;
  }
};

inline SyntheticSite synthetic_site(std::vector<std::vector<float>> weights,
                                    const std::vector<float>& x, std::int64_t columns) {
  SyntheticSite site;
  site.weights = std::move(weights);
  site.scale_of.resize(static_cast<std::size_t>(columns));
  std::iota(site.scale_of.begin(), site.scale_of.end(), 0);
  site.statistics = statistics_of(x, columns);
  return site;
}

}  // namespace leq::test
