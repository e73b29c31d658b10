#include "quantize/rewrites/fold.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/linear_sites.h"
#include "quantize/linear_algebra/matrix.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"
#include "ranks/communicator.h"

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
  Site made = {.name = site.name,
               .columns = site.columns,
               .scale_of = site.scale_of,
               .scales = site.scales,
               .statistics = &statistics,
               .pool = pool,
               .ranks = &ranks};
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
  const MethodInput input = {
      weight.name, weight.values, weight.rows, columns, like_plain(scheme), nullptr,
      {},          pool,          &ranks};
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

namespace {

// Column k of the attention's output gets the scale of channel k % d of its KV head.
void share_scales_of_kv_heads(const KvHeads& heads, SmoothingSite& site) {
  const std::int64_t d = heads.dims;
  const std::int64_t queries_per_kv = site.columns / d / heads.count;
  for (std::int64_t k = 0; k < site.columns; ++k) {
    const std::int64_t kv_head = k / d / queries_per_kv;
    site.scale_of[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(kv_head * d + k % d);
  }
  site.scales = heads.count * d;
}

SmoothingSite smoothing_site(const LinearSite& linear) {
  SmoothingSite site = {
      linear.name,     Producer::run_time,
      linear.producer, {},
      linear.inputs,   std::vector<std::int32_t>(static_cast<std::size_t>(linear.inputs)),
      linear.inputs};
  std::iota(site.scale_of.begin(), site.scale_of.end(), 0);
  for (const LinearSpec& weight : linear.weights) {
    if (weight.apart) continue;
    (weight.exact ? site.exact : site.consumers).push_back(weight.name);
  }
  if (linear.norm) {
    site.producer = Producer::norm;
    site.producer_part = linear.norm->name;
  } else if (!linear.producer.empty()) {
    site.producer = Producer::rows;
  }
  if (site.producer == Producer::rows && linear.axis == Axis::query_heads)
    share_scales_of_kv_heads(linear.kv_heads, site);
  return site;
}

void scale_columns(Matrix& weight, const SmoothingSite& site, std::span<const float> scale) {
  const auto columns = static_cast<std::size_t>(weight.columns);
  for (std::size_t i = 0; i < weight.values.size(); ++i) {
    const float s = scale[static_cast<std::size_t>(site.scale_of[i % columns])];
    weight.values[i] = static_cast<float>(double{weight.values[i]} * double{s});
  }
}

// Divides row r by scale[r]; each number of a vector is treated as a row.
void divide_rows(Matrix& weight, std::span<const float> scale, const std::string& part) {
  ensure(weight.values.size() % scale.size() == 0, "fold: ", part, " holds ", weight.values.size(),
         " numbers, expected rows for ", scale.size(), " scales");
  const std::size_t columns = weight.values.size() / scale.size();
  for (std::size_t i = 0; i < weight.values.size(); ++i) {
    weight.values[i] = static_cast<float>(double{weight.values[i]} / double{scale[i / columns]});
  }
}

// Multiplies the factors that the engine applies to the input of `consumer` by 1 / s.
void divide_at_run_time(BlockTensors& block, const std::string& consumer, const SmoothingSite& site,
                        std::span<const float> scale) {
  const std::string part = consumer + ".inv_smooth";
  const auto columns = static_cast<std::size_t>(site.columns);
  Matrix& inverse = block.parts[part];
  if (inverse.values.empty()) inverse = {1, site.columns, std::vector<float>(columns, 1.0f)};
  ensure(inverse.columns == site.columns, "fold: ", part, " holds ", inverse.columns,
         " numbers, expected ", site.columns);
  for (std::size_t k = 0; k < columns; ++k) {
    const float s = scale[static_cast<std::size_t>(site.scale_of[k])];
    inverse.values[k] = static_cast<float>(double{inverse.values[k]} / double{s});
  }
}

}  // namespace

std::vector<SmoothingSite> smoothing_sites(const ModelConfig& config, std::int64_t layer) {
  std::vector<SmoothingSite> sites;
  for (const LinearSite& site : linear_sites(config, layer)) {
    sites.push_back(smoothing_site(site));
  }
  return sites;
}

void fold_scales(BlockTensors& block, const SmoothingSite& site, std::span<const float> scale) {
  ensure(std::ssize(scale) == site.scales, "fold ", site.name, ": ", scale.size(),
         " scales, expected ", site.scales);
  for (std::size_t i = 0; i < scale.size(); ++i) {
    ensure(std::isfinite(scale[i]) && scale[i] > 0, "fold ", site.name, ": scale ", i, " is ",
           scale[i], ", expected a positive number");
  }
  for (const std::string& part : site.consumers) {
    ensure(block.at(part).columns == site.columns, "fold ", site.name, ": ", part, " has ",
           block.at(part).columns, " columns, expected ", site.columns);
  }
  if (site.producer == Producer::run_time) {
    for (const std::string& part : site.consumers) divide_at_run_time(block, part, site, scale);
  } else {
    const std::string bias = site.producer_part + ".bias";
    divide_rows(block.at(site.producer_part), scale, site.producer_part);
    if (block.has(bias)) divide_rows(block.at(bias), scale, bias);
  }
  for (const std::string& part : site.consumers) scale_columns(block.at(part), site, scale);
  for (const std::string& part : site.exact) scale_columns(block.at(part), site, scale);
}

namespace {

// Rows that suffice to compare exponents; the best is then compared with no scaling over all rows.
constexpr std::int64_t kFewRows = 128;

// The first consumer's plan, which is used for all; nullopt if its type is not an integer type.
std::optional<TensorPlan> integer_plan(const FoldInput& input) {
  const TensorPlan plan = input.plan(input.site.consumers.front());
  if (!plan.scheme.is_integer()) return std::nullopt;
  return plan;
}

Site site_of(const FoldInput& input) {
  return make_site(input.site, input.block, input.statistics, &input.pool, input.ranks);
}

}  // namespace

FoldMethod smoothing_fold(std::optional<double> alpha) {
  const auto choose = [alpha](const FoldInput& input) -> FoldChoice {
    const auto plan = integer_plan(input);
    if (!plan) return {};
    if (alpha) return {smoothing_scales(site_of(input), *alpha)};
    SmoothingChoice found =
        search_smoothing(site_of(input), {.weight = plan->scheme, .act = plan->act});
    if (!found.alpha) return {};
    return {std::move(found.scales)};
  };
  return {"smoothquant, alpha " + (alpha ? Json(*alpha).dump() : std::string("searched")), false,
          choose};
}

FoldMethod awq_fold() {
  return {"awq", true, [](const FoldInput& input) -> FoldChoice {
            const auto plan = integer_plan(input);
            if (!plan) return {};
            AwqResult result = apply_awq(site_of(input), {.scheme = plan->scheme});
            return {std::move(result.found.scales), std::move(result.weights)};
          }};
}

FoldMethod awq_scales_fold() {
  return {"awq, scales", false, [](const FoldInput& input) -> FoldChoice {
            const auto plan = integer_plan(input);
            if (!plan) return {};
            AwqOptions options = {.scheme = plan->scheme, .search_rows = kFewRows};
            for (const std::string& part : input.site.consumers) {
              options.of_consumers.push_back(input.plan(part).scheme);
            }
            AwqScales found = search_awq_scales(site_of(input), options);
            if (found.exponent == 0 && !found.by_weights) return {};
            return {std::move(found.scales)};
          }};
}

}  // namespace leq
