#include "quantize/rewrites/fold.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/half.h"
#include "quantize/methods/gptq.h"
#include "quantize/methods/method.h"
#include "ranks/communicator.h"

namespace leq {
namespace {

constexpr double kSmallestScale = 1e-4;

// Means over the channels with a common scale: [S] of [K].
std::vector<double> means_by_scale(const Site& site, std::span<const double> of_columns) {
  std::vector<double> means(static_cast<std::size_t>(site.scales)), tied(means.size());
  for (std::size_t k = 0; k < of_columns.size(); ++k) {
    const auto at = static_cast<std::size_t>(site.scale_of[k]);
    means[at] += of_columns[k];
    tied[at] += 1;
  }
  for (std::size_t j = 0; j < means.size(); ++j) means[j] /= tied[j];
  return means;
}

// Mean over rows of |W_nj| / (largest of its group), then over channels with a common scale: [S].
std::vector<double> weight_sizes(const Site& site, const QuantScheme& scheme) {
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : site.columns;
  std::vector<double> of_columns(static_cast<std::size_t>(site.columns));
  double rows = 0;
  for (const SiteWeight& consumer : site.consumers) {
    rows += static_cast<double>(consumer.rows);
    for (std::int64_t first = 0; first < std::ssize(consumer.values); first += site.columns) {
      for (std::int64_t k = 0; k < site.columns; k += group) {
        const auto x =
            consumer.values.subspan(static_cast<std::size_t>(first + k),
                                    static_cast<std::size_t>(std::min(group, site.columns - k)));
        float largest = 0;
        for (const float value : x) largest = std::max(largest, std::fabs(value));
        if (largest == 0) continue;
        for (std::size_t i = 0; i < x.size(); ++i) {
          of_columns[static_cast<std::size_t>(k) + i] +=
              static_cast<double>(std::fabs(x[i]) / largest);
        }
      }
    }
  }
  for (double& size : of_columns) size /= rows;
  return means_by_scale(site, of_columns);
}

// Mean |x| over tokens, then over channels with a common scale: [S].
std::vector<double> input_sizes(const Site& site) {
  const InputStatistics& statistics = *site.statistics;
  require(std::ssize(statistics.abs_sum) == site.columns && statistics.tokens > 0, site.name,
          ": the statistics have the mean inputs of ", statistics.abs_sum.size(),
          " columns, the weights have ", site.columns, "; calibrate this model");
  std::vector<double> of_columns = statistics.abs_sum;
  for (double& size : of_columns) size /= static_cast<double>(statistics.tokens);
  return means_by_scale(site, of_columns);
}

// Scales for one exponent. `weights` is empty if the formula without weights is used.
std::vector<float> awq_scales(std::span<const double> inputs, std::span<const double> weights,
                              double exponent) {
  std::vector<double> scales;
  for (std::size_t j = 0; j < inputs.size(); ++j) {
    double s = std::pow(inputs[j], exponent);
    if (!weights.empty()) s /= std::pow(weights[j], 1 - exponent) + kSmallestScale;
    scales.push_back(std::max(s, kSmallestScale));
  }
  const auto [least, largest] = std::minmax_element(scales.begin(), scales.end());
  const double middle = std::sqrt(*least * *largest);
  std::vector<float> rounded;
  for (const double s : scales) {
    const auto scale = static_cast<float>(s / middle);
    rounded.push_back(std::isfinite(scale) && scale > 0 ? scale : 1.0f);
  }
  return rounded;
}

// The ranks that divide the rows of a site's weights; a single rank if rows share a scale.
Communicator& dividers(const Site& site, const QuantScheme& scheme) {
  return scheme.scaling == Scaling::tensor ? one_rank() : *site.ranks;
}

// At most `count` of a weight's rows, evenly spaced; returns only the rows that this rank handles.
std::vector<float> some_rows(const SiteWeight& weight, std::int64_t columns, std::int64_t count,
                             const Communicator& ranks) {
  const std::int64_t taken = std::min(count, weight.rows);
  const Slice own = own_rows(ranks, taken, 1);
  std::vector<float> rows;
  for (std::int64_t i = own.first; i < own.last; ++i) {
    const auto from = weight.values.begin() + i * weight.rows / taken * columns;
    rows.insert(rows.end(), from, from + columns);
  }
  return rows;
}

// Weight error W - Q(W diag(s)) diag(1 / s) [N][K] if the inputs are divided by s.
std::vector<float> difference(std::span<const float> wanted, std::vector<float> rounded,
                              std::span<const float> scale) {
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    rounded[i] = wanted[i] - rounded[i] / scale[i % scale.size()];
  }
  return rounded;
}

// Values [N][K] that method rtn stores for a weight whose columns were multiplied by `scale` [K].
// Superblock scales are fitted with the mean squares of the inputs, which are divided by `scale`.
std::vector<float> fitted_weight(const SiteWeight& scaled, const QuantScheme& scheme,
                                 const Site& site, std::span<const float> scale) {
  InputStatistics statistics;
  statistics.columns = site.columns;
  statistics.tokens = site.statistics->tokens;
  for (std::size_t k = 0; k < scale.size(); ++k) {
    const auto s = static_cast<double>(scale[k]);
    statistics.square_sum.push_back(site.statistics->square_sum[k] / (s * s));
  }
  const MethodInput input = {scaled.name, scaled.values, scaled.rows, site.columns,
                             scheme,      &statistics,   {},          site.pool};
  return dequantize(choose_super_rtn(input).codes, scaled.rows, site.columns, scheme);
}

// Whether superblock scales are fitted: only for few candidates, as it is tens of times slower.
enum class Rounding : std::uint8_t { plain_ranges, as_stored };

// The rows of the consumers that a search uses, and the squared error of their outputs.
struct Trial {
  const Site& site;
  const AwqOptions& options;
  const OutputWeights& outputs;
  Rounding rounding;
  Communicator& ranks;
  std::vector<std::size_t> consumers;       // indices of the consumers that are used
  std::vector<std::vector<float>> weights;  // [consumers][some N][K], this rank's rows

  Trial(const Site& of, const AwqOptions& with, const OutputWeights& of_outputs, Rounding how,
        std::int64_t rows)
      : site(of),
        options(with),
        outputs(of_outputs),
        rounding(how),
        ranks(dividers(of, with.scheme)),
        consumers(searched_consumers(of)) {
    for (const std::size_t at : consumers) {
      weights.push_back(some_rows(site.consumers[at], site.columns, rows, ranks));
    }
  }

  double error(std::span<const float> scale) const {
    const std::vector<float> of_columns = scales_of_columns(site, scale);
    double total = 0;
    for (std::size_t c = 0; c < weights.size(); ++c) {
      const std::int64_t rows = std::ssize(weights[c]) / site.columns;
      const auto scaled = scaled_columns(weights[c], of_columns);
      total += output_error(
          difference(weights[c], rounded(consumers[c], scaled, rows, of_columns), of_columns));
    }
    return total;
  }

  std::vector<float> rounded(std::size_t consumer, std::span<const float> scaled, std::int64_t rows,
                             std::span<const float> of_columns) const {
    const SiteWeight weight = {site.consumers[consumer].name, scaled, rows};
    const QuantScheme& scheme =
        options.of_consumers.empty() ? options.scheme : options.of_consumers[consumer];
    if (!scheme.is_integer()) return {scaled.begin(), scaled.end()};
    return scheme.is_super() && rounding == Rounding::as_stored
               ? fitted_weight(weight, scheme, site, of_columns)
               : rounded_weight(weight, site.columns, scheme, site.pool, ranks);
  }

  double energy() const {
    double total = 0;
    for (const auto& weight : weights) total += output_error(weight);
    return total;
  }

  // Sum over the rows of all ranks, in row order.
  double output_error(std::span<const float> off) const {
    const auto errors = join_lists(ranks, outputs.errors(off), site.name);
    return std::accumulate(errors.begin(), errors.end(), 0.0);
  }
};

void try_exponents(const Trial& trial, const AwqOptions& options, AwqScales& best) {
  const std::vector<double> inputs = input_sizes(trial.site);
  const std::vector<double> weights = weight_sizes(trial.site, options.scheme);
  double least = trial.error(best.scales);
  for (const bool by_weights : {false, true}) {
    for (int i = by_weights ? 0 : 1; i <= options.steps; ++i) {
      const double exponent = static_cast<double>(i) / options.steps;
      std::vector<float> scales =
          awq_scales(inputs, by_weights ? weights : std::span<const double>(), exponent);
      const double error = trial.error(scales);
      if (error >= least) continue;
      least = error;
      best.scales = std::move(scales);
      best.exponent = exponent;
      best.by_weights = by_weights;
    }
  }
}

AwqScales search_scales(const Site& site, const AwqOptions& options, const OutputWeights& outputs) {
  AwqScales best;
  best.scales.assign(static_cast<std::size_t>(site.scales), 1.0f);
  const std::vector<float> none = best.scales;
  try_exponents(Trial(site, options, outputs, Rounding::plain_ranges, options.search_rows), options,
                best);
  std::int64_t max_rows = 0;
  for (const SiteWeight& consumer : site.consumers) max_rows = std::max(max_rows, consumer.rows);
  const Trial all(site, options, outputs, Rounding::as_stored, max_rows);
  const double energy = all.energy();
  best.plain_error = energy > 0 ? all.error(none) / energy : 0;
  best.error = energy > 0 ? all.error(best.scales) / energy : 0;
  if (best.error >= best.plain_error) {
    return {none, 0, false, best.plain_error, best.plain_error};
  }
  return best;
}

}  // namespace

AwqScales search_awq_scales(const Site& site, const AwqOptions& options) {
  return search_scales(site, options, {*site.statistics, site.pool});
}

AwqResult apply_awq(const Site& site, const AwqOptions& options) {
  AwqResult result;
  const OutputWeights outputs(*site.statistics, site.pool);
  result.found = search_scales(site, options, outputs);
  const std::vector<float> scale = scales_of_columns(site, result.found.scales);
  Communicator& ranks = dividers(site, options.scheme);
  for (const SiteWeight& consumer : site.consumers) {
    std::vector<float> scaled = scaled_columns(consumer.values, scale);
    const bool clips = consumer.name != "q" && consumer.name != "k";
    if (clips) {
      const Slice own = own_rows(ranks, consumer.rows, 1);
      const auto own_values =
          std::span(scaled).subspan(static_cast<std::size_t>(own.first * site.columns),
                                    static_cast<std::size_t>(own.count() * site.columns));
      scaled = join_lists(ranks,
                          clip_weight({consumer.name, own_values, own.count()}, scale,
                                      options.scheme, outputs, ranks),
                          site.name);
    }
    result.weights.push_back(std::move(scaled));
  }
  return result;
}

// The search for the clipping limit of each group.

namespace {

constexpr int kClipSteps = 10;
constexpr float kClipStep = 0.05f;

// Second moments of the inputs in each group, [G][g][g]. Only the diagonal if H is unknown or a
// group is a whole row.
struct GroupMoments {
  std::int64_t columns = 0;
  std::int64_t group = 0;
  std::vector<double> blocks;    // [G][g][g] or empty
  std::vector<double> diagonal;  // [K]

  GroupMoments(const InputStatistics& statistics, std::span<const float> scale,
               const QuantScheme& scheme)
      : columns(statistics.columns),
        group(scheme.scaling == Scaling::group ? scheme.group : statistics.columns) {
    for (std::size_t k = 0; k < scale.size(); ++k) {
      const auto s = static_cast<double>(scale[k]);
      diagonal.push_back(statistics.square_sum[k] / (s * s));
    }
    if (statistics.hessian.empty() || scheme.scaling != Scaling::group) return;
    blocks.resize(static_cast<std::size_t>((columns + group - 1) / group * group * group));
    for (std::int64_t i = 0; i < columns; ++i) {
      const std::int64_t first = i / group * group;
      for (std::int64_t j = first; j < std::min(first + group, columns); ++j) {
        const double product = static_cast<double>(scale[static_cast<std::size_t>(i)]) *
                               static_cast<double>(scale[static_cast<std::size_t>(j)]);
        blocks[static_cast<std::size_t>((first + i % group) * group + j - first)] =
            statistics.hessian[static_cast<std::size_t>(i * columns + j)] / product;
      }
    }
  }

  // d H d^T for the weight errors d of one group that starts at column `first`.
  double error(std::span<const double> d, std::int64_t first) const {
    double total = 0;
    if (blocks.empty()) {
      for (std::size_t i = 0; i < d.size(); ++i) {
        total += diagonal[static_cast<std::size_t>(first) + i] * d[i] * d[i];
      }
      return total;
    }
    for (std::size_t i = 0; i < d.size(); ++i) {
      const double* h = blocks.data() + (first + static_cast<std::int64_t>(i)) * group;
      double row = 0;
      for (std::size_t j = i + 1; j < d.size(); ++j) row += h[j] * d[j];
      total += d[i] * (h[i] * d[i] + 2 * row);
    }
    return total;
  }
};

// Rounds one group as a file with this scale_mul stores it; returns the error of each value.
struct GroupRounding {
  QuantScheme scheme;
  float scale_mul = 1;

  void differences(std::span<const float> x, float limit, std::vector<double>& out) const {
    std::vector<float> clipped;
    for (const float value : x) clipped.push_back(std::clamp(value, -limit, limit));
    const bool has_zero = scheme.kind == CodeKind::uint_;
    const Range range =
        has_zero ? fit_minmax(clipped, {}, scheme.bits) : fit_signed(clipped, {}, scheme.bits);
    const float scale = stored(range.scale);
    const CodeLimits limits = code_limits(scheme);
    const int zero = has_zero ? nearest_code(-range.low, scale, 0, limits) : 0;
    out.clear();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int code = nearest_code(clipped[i], scale, zero, limits);
      const float rounded = scale * static_cast<float>(code - zero);
      out.push_back(static_cast<double>(x[i]) - static_cast<double>(rounded));
    }
  }

 private:
  float stored(float scale) const {
    if (scheme.scaling != Scaling::group) return scale;
    const float rounded = f16_to_f32(f32_to_f16(scale / scale_mul)) * scale_mul;
    return rounded == 0 ? scale_mul : rounded;
  }
};

// Clips each group of a row to its best limit.
void clip_row(std::span<float> row, const GroupMoments& moments, const GroupRounding& rounding) {
  std::vector<double> off;
  for (std::int64_t first = 0; first < std::ssize(row); first += moments.group) {
    const auto x =
        row.subspan(static_cast<std::size_t>(first),
                    static_cast<std::size_t>(std::min(moments.group, std::ssize(row) - first)));
    float absmax = 0;
    for (const float value : x) absmax = std::max(absmax, std::fabs(value));
    if (absmax < kSmallestAbsmax) continue;
    float best = absmax;
    double least = 0;
    for (int i = 0; i < kClipSteps; ++i) {
      const float limit = absmax * (1 - kClipStep * static_cast<float>(i));
      rounding.differences(x, limit, off);
      const double error = moments.error(off, first);
      if (i > 0 && error >= least) continue;
      least = error;
      best = limit;
    }
    for (float& value : x) value = std::clamp(value, -best, best);
  }
}

// Output error of each row [N] if `stored`, after rounding, replaces `wanted`.
std::vector<double> row_errors(const SiteWeight& wanted, std::span<const float> stored,
                               std::span<const float> scale, const QuantScheme& scheme,
                               const OutputWeights& outputs, Communicator& ranks) {
  std::vector<float> off = rounded_weight({wanted.name, stored, wanted.rows}, std::ssize(scale),
                                          scheme, outputs.pool(), ranks);
  for (std::size_t i = 0; i < off.size(); ++i) {
    off[i] = (wanted.values[i] - off[i]) / scale[i % scale.size()];
  }
  return outputs.errors(off);
}

}  // namespace

std::vector<float> clip_weight(const SiteWeight& weight, std::span<const float> scale,
                               const QuantScheme& scheme, const OutputWeights& outputs,
                               Communicator& ranks) {
  ThreadPool* const pool = outputs.pool();
  const std::int64_t columns = outputs.statistics().columns;
  ensure(std::ssize(weight.values) == weight.rows * columns && std::ssize(scale) == columns,
         weight.name, ": expected ", weight.rows, " x ", columns, " values and ", columns,
         " scales, found ", weight.values.size(), " and ", scale.size());
  const MethodInput input = {weight.name, weight.values, weight.rows, columns, scheme, nullptr,
                             {},          pool,          &ranks};
  const RangeRule rule = scheme.kind == CodeKind::uint_ ? fit_minmax : fit_signed;
  const GroupRounding rounding{scheme, choose_ranges(input, rule).scale_mul};
  const GroupMoments moments(outputs.statistics(), scale, scheme);
  std::vector<float> clipped(weight.values.begin(), weight.values.end());
  for_rows(pool, weight.rows, [&](std::int64_t row) {
    clip_row(std::span(clipped).subspan(static_cast<std::size_t>(row * columns),
                                        static_cast<std::size_t>(columns)),
             moments, rounding);
  });
  const auto before = row_errors(weight, weight.values, scale, scheme, outputs, ranks);
  const auto after = row_errors(weight, clipped, scale, scheme, outputs, ranks);
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    if (after[static_cast<std::size_t>(row)] < before[static_cast<std::size_t>(row)]) continue;
    std::copy_n(weight.values.begin() + row * columns, columns, clipped.begin() + row * columns);
  }
  return clipped;
}

}  // namespace leq
