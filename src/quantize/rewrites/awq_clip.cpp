// The search for the clipping limit of each group.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "quantize/methods/fit.h"
#include "quantize/rewrites/awq.h"
#include "tensor/pack.h"

namespace leq {
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
  MethodInput input;
  input.name = weight.name;
  input.weight = weight.values;
  input.rows = weight.rows;
  input.columns = columns;
  input.scheme = scheme;
  input.pool = pool;
  input.ranks = &ranks;
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
