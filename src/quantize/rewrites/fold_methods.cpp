#include "quantize/rewrites/fold_methods.h"

#include <algorithm>

#include "base/text.h"
#include "quantize/rewrites/awq.h"
#include "quantize/rewrites/site.h"
#include "quantize/rewrites/smoothquant.h"

namespace leq {
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
  FoldMethod fold;
  fold.name = "smoothquant, alpha " + (alpha ? fixed(*alpha, 3) : std::string("searched"));
  fold.choose = [alpha](const FoldInput& input) -> FoldChoice {
    const auto plan = integer_plan(input);
    if (!plan) return {};
    if (alpha) return {smoothing_scales(site_of(input), *alpha)};
    SmoothingOptions options;
    options.weight = plan->scheme;
    options.act = plan->act;
    SmoothingChoice found = search_smoothing(site_of(input), options);
    if (!found.alpha) return {};
    return {std::move(found.scales)};
  };
  return fold;
}

FoldMethod equalizer_fold() {
  FoldMethod fold;
  fold.name = "equalizer";
  fold.choose = [](const FoldInput& input) -> FoldChoice {
    if (!integer_plan(input)) return {};
    return {equalizer_scales(site_of(input))};
  };
  return fold;
}

FoldMethod awq_fold() {
  FoldMethod fold;
  fold.name = "awq";
  fold.wants_hessian = true;
  fold.choose = [](const FoldInput& input) -> FoldChoice {
    const auto plan = integer_plan(input);
    if (!plan) return {};
    AwqOptions options;
    options.scheme = plan->scheme;
    AwqResult result = apply_awq(site_of(input), options);
    return {std::move(result.found.scales), std::move(result.weights)};
  };
  return fold;
}

FoldMethod awq_scales_fold() {
  FoldMethod fold;
  fold.name = "awq, scales";
  fold.choose = [](const FoldInput& input) -> FoldChoice {
    const auto plan = integer_plan(input);
    if (!plan) return {};
    AwqOptions options;
    options.scheme = plan->scheme;
    options.search_rows = kFewRows;
    for (const std::string& part : input.site.consumers) {
      options.of_consumers.push_back(input.plan(part).scheme);
    }
    AwqScales found = search_awq_scales(site_of(input), options);
    if (found.exponent == 0 && !found.by_weights) return {};
    return {std::move(found.scales)};
  };
  return fold;
}

}  // namespace leq
