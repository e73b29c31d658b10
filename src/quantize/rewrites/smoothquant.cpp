#include "quantize/rewrites/smoothquant.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "quantize/rewrites/act_rounding.h"

namespace leq {
namespace {

constexpr double kSmallestPeak = 1e-5;
constexpr double kLargestScale = 1e5;

// max |W_nj| over consumers, rows and tied channels, [S].
std::vector<double> weight_peaks(const Site& site) {
  std::vector<double> peaks(static_cast<std::size_t>(site.scales));
  for (const SiteWeight& consumer : site.consumers) {
    for (std::int64_t i = 0; i < std::ssize(consumer.values); ++i) {
      const auto value =
          static_cast<double>(std::fabs(consumer.values[static_cast<std::size_t>(i)]));
      const auto at = site.scale_of[static_cast<std::size_t>(i % site.columns)];
      double& peak = peaks[static_cast<std::size_t>(at)];
      peak = std::max(peak, value);
    }
  }
  return peaks;
}

std::vector<double> input_peaks(const Site& site) {
  require(std::ssize(site.statistics->absmax) == site.columns, site.name,
          ": expected largest inputs of ", site.columns, " columns, found ",
          site.statistics->absmax.size(), "; calibrate first");
  std::vector<double> peaks(static_cast<std::size_t>(site.scales));
  for (std::size_t k = 0; k < site.scale_of.size(); ++k) {
    double& peak = peaks[static_cast<std::size_t>(site.scale_of[k])];
    peak = std::max(peak, static_cast<double>(site.statistics->absmax[k]));
  }
  return peaks;
}

float clamped(double scale) {
  return static_cast<float>(std::clamp(scale, 1 / kLargestScale, kLargestScale));
}

struct Outputs {
  std::vector<std::vector<float>> plain;  // [consumers][N][T]
  double energy = 0;
};

Outputs plain_outputs(const Site& site) {
  require(site.statistics->sample_tokens() > 0 && site.statistics->columns == site.columns,
          site.name, ": the search for scales needs sampled tokens of ", site.columns,
          " columns; calibrate with some");
  Outputs result;
  for (const SiteWeight& consumer : site.consumers) {
    result.plain.push_back(
        outputs(site.statistics->samples, consumer.values, site.columns, site.pool));
    for (const float y : result.plain.back()) {
      result.energy += static_cast<double>(y) * static_cast<double>(y);
    }
  }
  return result;
}

double error_against(const Outputs& wanted, const Site& site, const SmoothingOptions& options,
                     std::span<const float> scale) {
  const std::vector<float> of_columns = scales_of_columns(site, scale);
  std::vector<float> x = site.statistics->samples;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] /= of_columns[i % of_columns.size()];
  round_activations(x, site.columns, options.act);
  double error = 0;
  for (std::size_t c = 0; c < site.consumers.size(); ++c) {
    const SiteWeight& consumer = site.consumers[c];
    const auto scaled = scaled_columns(consumer.values, of_columns);
    const auto weight =
        rounded_weight(consumer.name, scaled, consumer.rows, options.weight, site.pool);
    const auto found = outputs(x, weight, site.columns, site.pool);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double difference =
          static_cast<double>(wanted.plain[c][i]) - static_cast<double>(found[i]);
      error += difference * difference;
    }
  }
  return wanted.energy > 0 ? error / wanted.energy : 0;
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
  const std::vector<double> inputs = input_peaks(site), weights = weight_peaks(site);
  std::vector<float> scales(inputs.size(), 1.0f);
  for (std::size_t j = 0; j < scales.size(); ++j) {
    if (inputs[j] == 0) continue;
    const double a = std::max(inputs[j], kSmallestPeak), w = std::max(weights[j], kSmallestPeak);
    scales[j] = clamped(std::pow(a, alpha) / std::pow(w, 1 - alpha));
  }
  return scales;
}

std::vector<float> equalizer_scales(const Site& site) {
  std::vector<float> scales;
  for (const double w : weight_peaks(site)) {
    scales.push_back(clamped(1 / std::max(w, kSmallestPeak)));
  }
  return scales;
}

SmoothingChoice search_smoothing(const Site& site, const SmoothingOptions& options) {
  const Outputs wanted = plain_outputs(site);
  SmoothingChoice choice;
  choice.scales.assign(static_cast<std::size_t>(site.scales), 1.0f);
  choice.plain_error = error_against(wanted, site, options, choice.scales);
  choice.error = choice.plain_error;
  for (const double alpha : options.alphas) {
    std::vector<float> scales = smoothing_scales(site, alpha);
    const double error = error_against(wanted, site, options, scales);
    if (error >= choice.error) continue;
    choice.error = error;
    choice.alpha = alpha;
    choice.scales = std::move(scales);
  }
  return choice;
}

}  // namespace leq
