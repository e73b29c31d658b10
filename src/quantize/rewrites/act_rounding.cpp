#include "quantize/rewrites/act_rounding.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "quantize/calibration/statistics.h"
#include "quantize/methods/fit.h"
#include "tensor/pack.h"

namespace leq {
namespace {

float absmax_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  return largest;
}

float scale_of(const Histogram& histogram, float absmax) {
  if (absmax < kSmallestAbsmax) return 1.0f;
  float best = absmax;
  double least = rounding_error(histogram, absmax, absmax);
  for (const double share : {0.9999, 0.999}) {
    const float c = histogram_quantile(histogram, share);
    if (c < kSmallestAbsmax || c >= absmax) continue;
    const double error = rounding_error(histogram, absmax, c);
    if (error >= least) continue;
    least = error;
    best = c;
  }
  return best / 127.0f;
}

// Rounds to int8 with one scale and dequantizes. Codes are computed as in docs/numerics.md.
void round_group(std::span<float> x, float absmax) {
  if (absmax < kSmallestAbsmax) {
    std::fill(x.begin(), x.end(), 0.0f);
    return;
  }
  const float scale = absmax / 127.0f, inverse = 127.0f / absmax;
  for (float& value : x) {
    value = scale * static_cast<float>(nearest_code(value * inverse, 1.0f, 0, {-127, 127}));
  }
}

// Sum over outputs and tokens of weight_t (a - b)^2; a and b are [N][T].
double weighted_error(std::span<const float> a, std::span<const float> b,
                      std::span<const double> weights) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    total += weights[i % weights.size()] * difference * difference;
  }
  return total;
}

}  // namespace

float static_act_scale(const InputStatistics& statistics) {
  return scale_of(statistics.histogram, absmax_of(statistics.absmax));
}

float static_act_scale(std::span<const float> values) {
  Histogram histogram;
  for (const float value : values) histogram.add(value);
  return scale_of(histogram, absmax_of(values));
}

void round_activations(std::span<float> x, std::int64_t columns, ActKind act) {
  if (!is_coded(act)) return;
  if (has_stored_scale(act)) return round_group(x, static_act_scale(x) * 127.0f);
  if (has_moving_scale(act)) return round_group(x, absmax_of(x));
  const std::int64_t group = scale_columns(act) > 0 ? scale_columns(act) : columns;
  for (std::int64_t row = 0; row < std::ssize(x); row += columns) {
    for (std::int64_t k = 0; k < columns; k += group) {
      const auto part = x.subspan(static_cast<std::size_t>(row + k),
                                  static_cast<std::size_t>(std::min(group, columns - k)));
      round_group(part, absmax_of(part));
    }
  }
}

ActErrors act_errors(const Site& site, const QuantScheme& weight, float scale) {
  const InputStatistics& statistics = *site.statistics;
  const std::int64_t samples = statistics.sample_tokens();
  require(samples > 0 && std::ssize(statistics.largest_token) == site.columns, site.name,
          ": checking a fixed scale needs sampled tokens of ", site.columns, " columns");
  std::vector<float> x = statistics.samples;
  x.insert(x.end(), statistics.largest_token.begin(), statistics.largest_token.end());
  std::vector<double> weights(
      static_cast<std::size_t>(samples),
      static_cast<double>(statistics.tokens) / static_cast<double>(samples));
  weights.push_back(1);
  std::vector<float> fixed = x, by_token = x;
  round_group(fixed, scale * 127.0f);
  round_activations(by_token, site.columns, ActKind::row);
  ActErrors errors;
  for (const SiteWeight& consumer : site.consumers) {
    const auto wanted = outputs(x, consumer.values, site.columns, site.pool, *site.ranks);
    const auto rounded = rounded_weight(consumer, site.columns, weight, site.pool);
    const auto error_of = [&](const std::vector<float>& inputs) {
      return weighted_error(wanted, outputs(inputs, rounded, site.columns, site.pool, *site.ranks),
                            weights);
    };
    errors.fixed += error_of(fixed);
    errors.by_token += error_of(by_token);
  }
  return errors;
}

}  // namespace leq
