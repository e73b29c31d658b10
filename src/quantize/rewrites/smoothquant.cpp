#include "quantize/rewrites/fold.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "quantize/calibration/calibration.h"
#include "quantize/methods/method.h"

namespace leq {
namespace {

constexpr double kSmallestPeak = 1e-5;
constexpr double kLargestScale = 1e5;

// The largest of the channels with a common scale: [S] of [K].
std::vector<double> largest_by_scale(const Site& site, std::span<const float> of_columns) {
  std::vector<double> peaks(static_cast<std::size_t>(site.scales));
  for (std::size_t k = 0; k < of_columns.size(); ++k) {
    double& peak = peaks[static_cast<std::size_t>(site.scale_of[k])];
    peak = std::max(peak, static_cast<double>(of_columns[k]));
  }
  return peaks;
}

// Largest |W_nj| over consumers, rows and channels that share a scale: [S].
std::vector<double> weight_peaks(const Site& site) {
  std::vector<float> of_column(static_cast<std::size_t>(site.columns));
  for (const SiteWeight& consumer : site.consumers) {
    for (std::int64_t n = 0; n < consumer.rows; ++n) {
      const float* row = consumer.values.data() + n * site.columns;
      for (std::size_t k = 0; k < of_column.size(); ++k) {
        of_column[k] = std::max(of_column[k], std::fabs(row[k]));
      }
    }
  }
  return largest_by_scale(site, of_column);
}

std::vector<double> input_peaks(const Site& site) {
  require(std::ssize(site.statistics->absmax) == site.columns, site.name,
          ": the statistics have the largest inputs of ", site.statistics->absmax.size(),
          " columns, the weights have ", site.columns, "; calibrate this model");
  return largest_by_scale(site, site.statistics->absmax);
}

// The largest magnitudes of inputs and of weights for each scale, both [S].
struct Peaks {
  explicit Peaks(const Site& site) : inputs(input_peaks(site)), weights(weight_peaks(site)) {}

  std::vector<double> inputs, weights;
};

std::vector<float> scales_at(const Peaks& peaks, double alpha) {
  std::vector<float> scales(peaks.inputs.size(), 1.0f);
  for (std::size_t j = 0; j < scales.size(); ++j) {
    if (peaks.inputs[j] == 0) continue;
    const double a = std::max(peaks.inputs[j], kSmallestPeak);
    const double w = std::max(peaks.weights[j], kSmallestPeak);
    scales[j] = static_cast<float>(
        std::clamp(std::pow(a, alpha) / std::pow(w, 1 - alpha), 1 / kLargestScale, kLargestScale));
  }
  return scales;
}

// The rows that the search compares: kSearchRows evenly spaced rows of a larger weight. This works
// because rows have independent errors unless one scale serves the whole tensor.
struct SearchedWeight {
  std::string_view name;
  std::vector<float> picked;      // copies of the chosen rows; empty: all rows
  std::span<const float> values;  // [R][K]
  std::int64_t rows = 0;          // R
  double weight = 1;              // N / R, the number of rows that each row represents
  std::vector<float> outputs;     // [R][T] outputs of the unrounded weights
};

SearchedWeight searched_rows(const Site& site, const SiteWeight& consumer, bool all) {
  SearchedWeight searched{.name = consumer.name, .rows = consumer.rows};
  searched.values = consumer.values;
  if (!all && consumer.rows > kSearchRows) {
    searched.rows = kSearchRows;
    searched.weight = static_cast<double>(consumer.rows) / kSearchRows;
    for (std::int64_t i = 0; i < kSearchRows; ++i) {
      const std::int64_t row = (2 * i + 1) * consumer.rows / (2 * kSearchRows);
      const auto begin = consumer.values.begin() + row * site.columns;
      searched.picked.insert(searched.picked.end(), begin, begin + site.columns);
    }
    searched.values = searched.picked;
  }
  searched.outputs =
      outputs(site.statistics->samples, searched.values, site.columns, site.pool, *site.ranks);
  return searched;
}

struct Searched {
  std::vector<SearchedWeight> weights;
  double energy = 0;
};

Searched searched_weights(const Site& site, const SmoothingOptions& options) {
  require(site.statistics->sample_tokens() > 0 && site.statistics->columns == site.columns,
          site.name, ": the search for scales needs sampled inputs of ", site.columns,
          " columns in the statistics; calibrate again with samples of them");
  Searched result;
  const std::vector<std::size_t> picked = searched_consumers(site);
  result.weights.reserve(picked.size());  // no reallocation, so that views remain valid
  for (const std::size_t at : picked) {
    const SiteWeight& consumer = site.consumers[at];
    result.weights.push_back(
        searched_rows(site, consumer, options.weight.scaling == Scaling::tensor));
    const SearchedWeight& searched = result.weights.back();
    double energy = 0;
    for (const float y : searched.outputs)
      energy += static_cast<double>(y) * static_cast<double>(y);
    result.energy += searched.weight * energy;
  }
  return result;
}

double error_against(const Searched& wanted, const Site& site, const SmoothingOptions& options,
                     std::span<const float> scale) {
  const std::vector<float> of_columns = scales_of_columns(site, scale);
  std::vector<float> x = site.statistics->samples;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] /= of_columns[i % of_columns.size()];
  round_activations(x, site.columns, options.act);
  double total = 0;
  for (const SearchedWeight& searched : wanted.weights) {
    const auto scaled = scaled_columns(searched.values, of_columns);
    const auto weight = rounded_weight({searched.name, scaled, searched.rows}, site.columns,
                                       options.weight, site.pool);
    const auto found = outputs(x, weight, site.columns, site.pool, *site.ranks);
    double error = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double difference =
          static_cast<double>(searched.outputs[i]) - static_cast<double>(found[i]);
      error += difference * difference;
    }
    total += searched.weight * error;
  }
  return wanted.energy > 0 ? total / wanted.energy : 0;
}

}  // namespace

std::span<const SmoothingPreset> smoothing_presets() {
  static constexpr QuantScheme kTensor{CodeKind::int_, 8, Scaling::tensor, 0};
  static constexpr QuantScheme kRow{CodeKind::int_, 8, Scaling::row, 0};
  static constexpr SmoothingPreset kPresets[] = {
      {"default", "weights by row, inputs by token", kRow, ActKind::row},
      {"o1", "weights by tensor, inputs by token", kTensor, ActKind::row},
      {"o2", "weights by tensor, inputs by a scale that follows them", kTensor, ActKind::online},
      {"o3", "weights by tensor, inputs by a fixed scale", kTensor, ActKind::tensor},
  };
  return kPresets;
}

std::vector<float> smoothing_scales(const Site& site, double alpha) {
  return scales_at(Peaks(site), alpha);
}

SmoothingChoice search_smoothing(const Site& site, const SmoothingOptions& options) {
  const Searched wanted = searched_weights(site, options);
  const Peaks peaks(site);
  SmoothingChoice choice;
  choice.scales.assign(static_cast<std::size_t>(site.scales), 1.0f);
  choice.plain_error = error_against(wanted, site, options, choice.scales);
  choice.error = choice.plain_error;
  for (const double alpha : options.alphas) {
    std::vector<float> scales = scales_at(peaks, alpha);
    const double error = error_against(wanted, site, options, scales);
    if (error >= choice.error) continue;
    choice.error = error;
    choice.alpha = alpha;
    choice.scales = std::move(scales);
  }
  return choice;
}

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
