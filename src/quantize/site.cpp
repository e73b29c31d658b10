#include "quantize/site.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "quantize/error.h"
#include "quantize/fit.h"

namespace leq {
namespace {

using F32x4 = float __attribute__((vector_size(16)));
constexpr std::int64_t kLanes = 4;
constexpr std::int64_t kTileRows = 2;    // rows of w and
constexpr std::int64_t kTileTokens = 4;  // of x whose sums fill the registers of SSE2

F32x4 load(const float* from) {
  F32x4 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// out[r * stride + t] = sum_k w[r][k] x[t][k] of a whole tile. Lane k % 4, then the lanes.
void tile(const float* w, const float* x, std::int64_t columns, float* out, std::int64_t stride) {
  std::array<std::array<F32x4, kTileTokens>, kTileRows> sums = {};
  const std::int64_t whole = columns / kLanes * kLanes;
  for (std::int64_t k = 0; k < whole; k += kLanes) {
    const F32x4 w0 = load(w + k), w1 = load(w + columns + k);
    for (std::size_t t = 0; t < kTileTokens; ++t) {
      const F32x4 value = load(x + static_cast<std::int64_t>(t) * columns + k);
      sums[0][t] += w0 * value;
      sums[1][t] += w1 * value;
    }
  }
  for (std::size_t r = 0; r < kTileRows; ++r) {
    for (std::size_t t = 0; t < kTileTokens; ++t) {
      const F32x4& s = sums[r][t];
      const auto row = static_cast<std::int64_t>(r), token = static_cast<std::int64_t>(t);
      float sum = (s[0] + s[1]) + (s[2] + s[3]);
      for (std::int64_t k = whole; k < columns; ++k) {
        sum += w[row * columns + k] * x[token * columns + k];
      }
      out[row * stride + token] = sum;
    }
  }
}

// A matrix whose rows are padded with rows of 0 to a multiple of `step`.
std::vector<float> padded(std::span<const float> values, std::int64_t columns, std::int64_t step) {
  const std::int64_t rows = std::ssize(values) / columns;
  std::vector<float> whole(static_cast<std::size_t>((rows + step - 1) / step * step * columns));
  std::copy(values.begin(), values.end(), whole.begin());
  return whole;
}

}  // namespace

Site make_site(const SmoothingSite& site, const BlockTensors& block,
               const InputStatistics& statistics, ThreadPool* pool) {
  Site made;
  made.name = site.name;
  made.columns = site.columns;
  made.scale_of = site.scale_of;
  made.scales = site.scales;
  made.statistics = &statistics;
  made.pool = pool;
  require(statistics.columns == site.columns, site.name, ": expected statistics of ", site.columns,
          " columns, found ", statistics.columns);
  for (const std::string& part : site.consumers) {
    const Matrix& weight = block.at(part);
    require(weight.columns == site.columns, site.name, ": expected ", site.columns, " columns of ",
            part, ", found ", weight.columns);
    made.consumers.push_back({part, weight.values, weight.rows});
  }
  return made;
}

std::vector<float> scales_of_columns(const Site& site, std::span<const float> scale) {
  require(std::ssize(scale) == site.scales, site.name, ": expected ", site.scales,
          " scales, found ", scale.size());
  std::vector<float> of_columns;
  for (const std::int32_t at : site.scale_of) {
    of_columns.push_back(scale[static_cast<std::size_t>(at)]);
  }
  return of_columns;
}

std::vector<float> scaled_columns(std::span<const float> weight, std::span<const float> scale) {
  std::vector<float> scaled(weight.begin(), weight.end());
  for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] *= scale[i % scale.size()];
  return scaled;
}

std::vector<float> rounded_weight(std::string_view name, std::span<const float> weight,
                                  std::int64_t rows, const QuantScheme& scheme, ThreadPool* pool) {
  MethodInput input;
  input.name = name;
  input.weight = weight;
  input.rows = rows;
  input.columns = std::ssize(weight) / rows;
  input.scheme = scheme;
  input.pool = pool;
  const RangeRule rule = scheme.kind == CodeKind::uint_ ? fit_minmax : fit_signed;
  return dequantize(nearest_codes(input, choose_ranges(input, rule)), rows, input.columns, scheme);
}

std::vector<float> outputs(std::span<const float> x, std::span<const float> w, std::int64_t columns,
                           ThreadPool* pool) {
  const std::int64_t tokens = std::ssize(x) / columns, rows = std::ssize(w) / columns;
  const std::vector<float> all_x = padded(x, columns, kTileTokens);
  const std::int64_t stride = std::ssize(all_x) / columns;
  std::vector<float> out(static_cast<std::size_t>(rows * tokens));
  for_rows(pool, (rows + kTileRows - 1) / kTileRows, [&](std::int64_t task) {
    const std::int64_t first = task * kTileRows, count = std::min(kTileRows, rows - first);
    const std::vector<float> mine = padded(w.subspan(static_cast<std::size_t>(first * columns),
                                                     static_cast<std::size_t>(count * columns)),
                                           columns, kTileRows);
    std::vector<float> sums(static_cast<std::size_t>(kTileRows * stride));
    for (std::int64_t t = 0; t < stride; t += kTileTokens) {
      tile(mine.data(), all_x.data() + t * columns, columns, sums.data() + t, stride);
    }
    for (std::int64_t r = 0; r < count; ++r) {
      std::copy_n(sums.begin() + r * stride, tokens, out.begin() + (first + r) * tokens);
    }
  });
  return out;
}

}  // namespace leq
