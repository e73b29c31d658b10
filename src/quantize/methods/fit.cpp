#include "quantize/methods/method.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ranks/communicator.h"
#include "tensor/pack.h"
#include "tensor/table_codes.h"

namespace leq {
namespace {

constexpr int kCandidateSteps = 9;      // number of scales on each side of the unweighted one
constexpr float kCandidateStep = 0.1f;  // step between scales, in levels of the largest |x|
constexpr int kZeroSteps = 2;           // number of zero points on each side of the unweighted one
constexpr double kLeastGain = 1e-9;     // relative; smaller gains are rounding errors of the sums
constexpr int kMovePasses = 32;

// Returns the value of the first x with the largest |x|, with its sign.
float peak(std::span<const float> x) {
  float found = 0;
  for (const float value : x) {
    if (std::fabs(value) > std::fabs(found)) found = value;
  }
  return found;
}

int levels_below(int bits) { return 1 << (bits - 1); }

// Sums over codes l of a group, from which follow the best scale and its gain. The weighted squared
// error is sum w x^2 - gain.
struct Sums {
  double xl = 0, ll = 0;
  double scale() const { return ll > 0 ? xl / ll : 0; }
  double gain() const { return ll > 0 ? xl * xl / ll : 0; }
};

// The data of one group during the search for a scale.
struct Search {
  std::span<const float> x, w;
  CodeLimits limits;
  std::vector<float> codes = {};

  // Sums for the codes clip(rne(inverse * x)). Four accumulators shorten the dependency chain.
  Sums sums_of(float inverse) const {
    constexpr std::size_t kLanes = 4;
    const auto low = static_cast<float>(limits.low), high = static_cast<float>(limits.high);
    constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
    std::array<double, kLanes> xl = {}, ll = {};
    const auto add = [&](std::size_t i, std::size_t lane) {
      float y = x[i] * inverse;
      y = y < low ? low : y;
      y = y > high ? high : y;
      const float code = (y + kRounder) - kRounder;
      const double weighted = static_cast<double>(w[i]) * static_cast<double>(code);
      xl[lane] += weighted * static_cast<double>(x[i]);
      ll[lane] += weighted * static_cast<double>(code);
    };
    std::size_t i = 0;
    for (; i + kLanes <= x.size(); i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    }
    for (; i < x.size(); ++i) add(i, 0);
    return {(xl[0] + xl[1]) + (xl[2] + xl[3]), (ll[0] + ll[1]) + (ll[2] + ll[3])};
  }

  void keep_codes(float inverse) {
    codes.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      codes[i] = static_cast<float>(nearest_code(x[i] * inverse, 1.0f, 0, limits));
    }
  }

  // Changes single codes by one while the gain increases; returns the sums of the final codes.
  Sums move_codes(Sums sums) {
    bool moved = true;
    for (int pass = 0; moved && pass < kMovePasses; ++pass) {
      moved = false;
      for (std::size_t i = 0; i < x.size(); ++i) {
        for (const float step : {-1.0f, 1.0f}) moved = try_move(sums, i, step) || moved;
      }
    }
    return sums;
  }

 private:
  bool try_move(Sums& sums, std::size_t i, float step) {
    const float code = codes[i] + step;
    if (code < static_cast<float>(limits.low) || code > static_cast<float>(limits.high)) {
      return false;
    }
    const auto weight = static_cast<double>(w[i]);
    const Sums next = {
        sums.xl + weight * static_cast<double>(x[i]) * static_cast<double>(step),
        sums.ll + weight * (2 * static_cast<double>(codes[i]) * static_cast<double>(step) + 1)};
    if (next.gain() <= sums.gain() * (1 + kLeastGain)) return false;
    codes[i] = code;
    sums = next;
    return true;
  }
};

// The best pair of inverse scale and limits that was tried for one group.
struct Best {
  float inverse = 0;
  CodeLimits limits;
  Sums sums;

  void offer(const Search& search, float candidate) {
    const Sums found = search.sums_of(candidate);
    if (found.gain() > sums.gain()) *this = {candidate, search.limits, found};
  }

  // Changes single codes, then returns the best scale for them.
  float refine(Search& search) const {
    search.limits = limits;
    search.keep_codes(inverse);
    return static_cast<float>(search.move_codes(sums).scale());
  }
};

void check_finite_row(const MethodInput& input, std::int64_t row) {
  const float* values = input.weight.data() + row * input.columns;
  for (std::int64_t k = 0; k < input.columns; ++k) {
    if (std::isfinite(values[k])) continue;
    fail(input.name, ": value ", values[k], " at row ", row, ", column ", k,
         " is not finite; the checkpoint is damaged, get it again");
  }
}

// Largest |x| of a group or, with zero points, its range; decides whether the group gets a scale.
float extent(std::span<const float> x, const QuantScheme& scheme) {
  if (scheme.kind != CodeKind::uint_) return std::fabs(peak(x));
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  return std::max(0.0f, *high) - std::min(0.0f, *low);
}

void share_over_rows(Ranges& ranges, std::vector<float>& extents) {
  const auto largest = std::max_element(extents.begin(), extents.end());
  const float scale = ranges.scales[static_cast<std::size_t>(largest - extents.begin())];
  std::fill(ranges.scales.begin(), ranges.scales.end(), scale);
  std::fill(extents.begin(), extents.end(), float{*largest});
}

// Rounds scales to values that the file can store, then computes zero points from these scales.
void round_ranges(const MethodInput& input, Ranges& ranges, std::vector<float>& extents,
                  std::span<const float> lows) {
  const QuantScheme& scheme = input.scheme;
  if (scheme.scaling == Scaling::tensor) share_over_rows(ranges, extents);
  if (scheme.scaling == Scaling::group) {
    const std::vector<float> largest =
        join_lists<float>(*input.ranks, {largest_group_scale(ranges.scales, extents)}, input.name);
    ranges.scale_mul =
        round_group_scales(ranges.scales, extents, *std::ranges::max_element(largest));
  }
  ranges.divisors = ranges.scales;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] >= kSmallestAbsmax) continue;
    ranges.scales[i] = ranges.scale_mul;
    ranges.divisors[i] = std::numeric_limits<float>::infinity();
  }
  if (scheme.kind != CodeKind::uint_) return;
  ranges.zeros.resize(lows.size());
  for (std::size_t i = 0; i < lows.size(); ++i) {
    const int zero = nearest_code(-lows[i], ranges.divisors[i], 0, ranges.limits);
    ranges.zeros[i] = static_cast<std::uint8_t>(zero);
  }
}

// Calls visit(index of the range, x, first column) for each group of each row.
template <class Visit>
void each_group(const MethodInput& input, const Ranges& ranges, const Visit& visit) {
  for_rows(input.pool, input.rows, [&](std::int64_t row) {
    for (std::int64_t first = 0; first < input.columns; first += ranges.group) {
      const std::int64_t size = std::min(ranges.group, input.columns - first);
      visit(ranges.index(row, first),
            input.weight.subspan(static_cast<std::size_t>(row * input.columns + first),
                                 static_cast<std::size_t>(size)),
            static_cast<std::size_t>(first));
    }
  });
}

// Ranges without scales.
Ranges ranges_without_scales(const MethodInput& input) {
  require_finite(input);
  Ranges ranges;
  ranges.limits = code_limits(input.scheme);
  ranges.group = input.scheme.scaling == Scaling::group ? input.scheme.group : input.columns;
  ranges.per_row = (input.columns + ranges.group - 1) / ranges.group;
  ranges.scales.resize(static_cast<std::size_t>(input.rows * ranges.per_row));
  return ranges;
}

// Scales of codes with a table. A group without scale has the scale 0, because the table may have
// no number 0.
Ranges table_ranges(const MethodInput& input, std::span<const float> importance) {
  Ranges ranges = ranges_without_scales(input);
  each_group(input, ranges, [&](std::size_t at, std::span<const float> x, std::size_t first) {
    ranges.scales[at] =
        fit_table_scale(input.scheme.kind, x,
                        importance.empty() ? importance : importance.subspan(first, x.size()));
  });
  ranges.divisors = ranges.scales;
  std::ranges::replace(ranges.divisors, 0.0f, std::numeric_limits<float>::infinity());
  return ranges;
}

}  // namespace

CodeLimits code_limits(const QuantScheme& scheme) {
  if (scheme.has_table()) {
    const auto [low, high] = std::ranges::minmax(table_numbers(scheme.kind));
    return {low, high, nearest_numbers(scheme.kind).data()};
  }
  if (scheme.kind == CodeKind::uint_) return {0, (1 << scheme.bits) - 1};
  const int high = levels_below(scheme.bits) - 1;
  return {scheme.bits == 8 ? -high : -high - 1, high};
}

Range fit_absmax(std::span<const float> x, std::span<const float>, int bits) {
  return {std::fabs(peak(x)) / static_cast<float>(levels_below(bits) - 1), 0};
}

Range fit_signed(std::span<const float> x, std::span<const float> importance, int bits) {
  if (bits == 8) return fit_absmax(x, importance, bits);
  return {peak(x) / -static_cast<float>(levels_below(bits)), 0};
}

Range fit_minmax(std::span<const float> x, std::span<const float>, int bits) {
  const auto [lowest, highest] = std::minmax_element(x.begin(), x.end());
  const float low = std::min(0.0f, *lowest), high = std::max(0.0f, *highest);
  return {(high - low) / static_cast<float>((1 << bits) - 1), low};
}

Range fit_weighted(std::span<const float> x, std::span<const float> importance, int bits) {
  const float v = peak(x);
  const Range plain = fit_signed(x, importance, bits);
  if (std::fabs(v) < kSmallestAbsmax) return plain;
  const QuantScheme scheme{CodeKind::int_, bits, Scaling::row, 0};
  Search search{x, importance, code_limits(scheme)};
  Best best;
  const auto below = static_cast<float>(-search.limits.low);
  const auto above = static_cast<float>(search.limits.high);
  for (int i = -kCandidateSteps; i <= kCandidateSteps; ++i) {
    const float shift = kCandidateStep * static_cast<float>(i);
    if (bits < 8) best.offer(search, -(below + shift) / v);
    best.offer(search, (above + shift) / v);
  }
  if (best.sums.gain() <= 0) return plain;
  return {best.refine(search), 0};
}

Range fit_weighted_zero(std::span<const float> x, std::span<const float> importance, int bits) {
  const Range plain = fit_minmax(x, importance, bits);
  const int levels = (1 << bits) - 1;
  if (plain.scale * static_cast<float>(levels) < kSmallestAbsmax) return plain;
  const int middle = static_cast<int>(std::nearbyintf(-plain.low / plain.scale));
  Search search{x, importance, {}};
  Best best;
  for (int zero = middle - kZeroSteps; zero <= middle + kZeroSteps; ++zero) {
    if (zero < 0 || zero > levels) continue;
    search.limits = {-zero, levels - zero};
    for (int i = -kCandidateSteps; i <= kCandidateSteps; ++i) {
      const float shift = kCandidateStep * static_cast<float>(i) / static_cast<float>(levels);
      best.offer(search, (1 + shift) / plain.scale);
    }
  }
  if (best.sums.gain() <= 0) return plain;
  const float scale = best.refine(search);
  return {scale, static_cast<float>(best.limits.low) * scale};
}

void require_finite(const MethodInput& input) {
  ensure(std::ssize(input.weight) == input.rows * input.columns && input.columns > 0 &&
             (input.rows > 0 || input.ranks->size() > 1),
         input.name, ": expected ", input.rows, " x ", input.columns, " values, found ",
         input.weight.size());
  for_rows(input.pool, input.rows, [&](std::int64_t row) { check_finite_row(input, row); });
}

Ranges choose_ranges(const MethodInput& input, RangeRule rule, std::span<const float> importance) {
  const QuantScheme& scheme = input.scheme;
  Ranges ranges = ranges_without_scales(input);
  std::vector<float> extents(ranges.scales.size()), lows(ranges.scales.size());
  const std::vector<float> ones(importance.empty() ? static_cast<std::size_t>(input.columns) : 0,
                                1.0f);
  const std::span<const float> weights = importance.empty() ? std::span(ones) : importance;
  each_group(input, ranges, [&](std::size_t at, std::span<const float> x, std::size_t first) {
    const Range range = rule(x, weights.subspan(first, x.size()), scheme.bits);
    ranges.scales[at] = range.scale;
    lows[at] = range.low;
    extents[at] = extent(x, scheme);
  });
  round_ranges(input, ranges, extents, lows);
  return ranges;
}

ChosenCodes nearest_codes(const MethodInput& input, Ranges ranges) {
  ChosenCodes chosen;
  chosen.codes.resize(input.weight.size());
  for_rows(input.pool, input.rows, [&](std::int64_t row) {
    for (std::int64_t k = 0; k < input.columns; ++k) {
      const auto i = static_cast<std::size_t>(row * input.columns + k);
      const std::size_t at = ranges.index(row, k);
      chosen.codes[i] = static_cast<std::int16_t>(
          nearest_code(input.weight[i], ranges.divisors[at], ranges.zero(at), ranges.limits));
    }
  });
  chosen.scales = std::move(ranges.scales);
  chosen.zeros = std::move(ranges.zeros);
  chosen.scale_mul = ranges.scale_mul;
  return chosen;
}

std::vector<float> input_importance(const MethodInput& input) {
  std::vector<float> importance;
  if (input.statistics == nullptr || input.statistics->tokens == 0) return importance;
  const auto& squares = input.statistics->square_sum;
  ensure(std::ssize(squares) == input.columns, input.name, ": expected statistics of ",
         input.columns, " columns, found ", squares.size());
  const double largest = *std::max_element(squares.begin(), squares.end());
  if (largest <= 0) return importance;
  for (const double square : squares) importance.push_back(static_cast<float>(square / largest));
  return importance;
}

Ranges plain_ranges(const MethodInput& input) {
  return choose_ranges(input, input.scheme.kind == CodeKind::uint_ ? fit_minmax : fit_signed);
}

Ranges weighted_ranges(const MethodInput& input) {
  if (input.scheme.has_table()) return table_ranges(input, input_importance(input));
  if (input.scheme.scaling == Scaling::tensor) return plain_ranges(input);
  const RangeRule rule = input.scheme.kind == CodeKind::uint_ ? fit_weighted_zero : fit_weighted;
  return choose_ranges(input, rule, input_importance(input));
}

}  // namespace leq
