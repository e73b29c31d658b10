#include "quantize/rewrites/site.h"

#include <algorithm>

#include "base/error.h"
#include "comm/division.h"
#include "quantize/linear_algebra/dense.h"
#include "quantize/methods/error.h"
#include "quantize/methods/fit.h"

namespace leq {
namespace {

constexpr std::int64_t kTaskRows = 64;          // rows of w per task
constexpr std::size_t kSearchedConsumers = 17;  // odd, so that even steps select both gates and ups

// A plain scheme with similar codes and groups, because a search with superblock scales is slow.
QuantScheme like_plain(const QuantScheme& scheme) {
  if (!scheme.is_super()) return scheme;
  if (scheme.kind == CodeKind::q6_k) return {CodeKind::int_, 6, Scaling::group, 16};
  return {CodeKind::uint_, scheme.bits, Scaling::group, 32};
}

}  // namespace

Site make_site(const SmoothingSite& site, const BlockTensors& block,
               const InputStatistics& statistics, ThreadPool* pool, Communicator& ranks) {
  Site made;
  made.name = site.name;
  made.columns = site.columns;
  made.scale_of = site.scale_of;
  made.scales = site.scales;
  made.statistics = &statistics;
  made.pool = pool;
  made.ranks = &ranks;
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

std::vector<std::size_t> searched_consumers(const Site& site) {
  const std::size_t all = site.consumers.size(), taken = std::min(all, kSearchedConsumers);
  std::vector<std::size_t> picked;
  for (std::size_t i = 0; i < taken; ++i) picked.push_back(i * all / taken);
  return picked;
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

std::vector<float> rounded_weight(const SiteWeight& weight, std::int64_t columns,
                                  const QuantScheme& scheme, ThreadPool* pool,
                                  Communicator& ranks) {
  MethodInput input;
  input.name = weight.name;
  input.weight = weight.values;
  input.rows = weight.rows;
  input.columns = columns;
  input.scheme = like_plain(scheme);
  input.pool = pool;
  input.ranks = &ranks;
  const RangeRule rule = input.scheme.kind == CodeKind::uint_ ? fit_minmax : fit_signed;
  return dequantize(nearest_codes(input, choose_ranges(input, rule)), weight.rows, columns,
                    input.scheme);
}

std::vector<float> outputs(std::span<const float> x, std::span<const float> w, std::int64_t columns,
                           ThreadPool* pool, Communicator& ranks) {
  const std::int64_t tokens = std::ssize(x) / columns;
  const Slice own = own_rows(ranks, std::ssize(w) / columns, kTaskRows);
  std::vector<float> turned(x.size());  // [K][T]
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t k = 0; k < columns; ++k) {
      turned[static_cast<std::size_t>(k * tokens + t)] =
          x[static_cast<std::size_t>(t * columns + k)];
    }
  }
  std::vector<float> out(static_cast<std::size_t>(own.count() * tokens));
  for_rows(pool, (own.count() + kTaskRows - 1) / kTaskRows, [&](std::int64_t task) {
    const std::int64_t first = task * kTaskRows, count = std::min(kTaskRows, own.count() - first);
    add_product({w.data() + (own.first + first) * columns, count, columns, columns},
                {turned.data(), columns, tokens, tokens},
                Block<float>{out.data() + first * tokens, count, tokens, tokens});
  });
  return join_lists(ranks, std::move(out), "outputs of a search");
}

}  // namespace leq
