#include "backend/operations.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/checks.h"
#include "base/error.h"
#include "base/float_math.h"

namespace leq {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + leq_exp(-x)); }

// The experts of one row in ascending order, with their weights.
struct RowRoute {
  std::vector<float> p, score;    // [E]; the largest scores are chosen
  std::vector<std::int32_t> ids;  // [E]; the first k are the chosen experts

  void choose(const float* logits, const Routing& routing) {
    const auto count = static_cast<std::size_t>(routing.experts);
    p.resize(count);
    ids.resize(count);
    if (routing.sigmoid) {
      for (std::size_t e = 0; e < count; ++e) p[e] = sigmoid(logits[e]);
    } else {
      softmax(logits);
    }
    score = p;
    for (std::size_t e = 0; routing.choice_bias != nullptr && e < count; ++e) {
      score[e] += routing.choice_bias[e];
    }
    std::iota(ids.begin(), ids.end(), 0);
    const auto before = [this](std::int32_t a, std::int32_t b) {
      const float of_a = score[static_cast<std::size_t>(a)];
      const float of_b = score[static_cast<std::size_t>(b)];
      return of_a > of_b || (of_a == of_b && a < b);
    };
    const auto last = ids.begin() + routing.active;
    std::partial_sort(ids.begin(), last, ids.end(), before);
    std::sort(ids.begin(), last);
  }

  void softmax(const float* logits) {
    const float largest = *std::max_element(logits, logits + p.size());
    float sum = 0;
    for (std::size_t e = 0; e < p.size(); ++e) {
      p[e] = leq_exp(logits[e] - largest);
      sum += p[e];
    }
    for (float& value : p) value /= sum;
  }

  float total(std::int64_t active) const {
    float sum = 0;
    for (std::int64_t i = 0; i < active; ++i) {
      sum += p[static_cast<std::size_t>(ids[static_cast<std::size_t>(i)])];
    }
    return sum;
  }
};

void require_finite(const float* logits, std::int64_t count, std::int64_t row,
                    std::string_view site) {
  const bool finite =
      std::all_of(logits, logits + count, [](float logit) { return std::isfinite(logit); });
  if (!finite) fail_not_finite(site, row);
}

void route_by_scores(const float* logits, std::int64_t stride, std::int64_t tokens,
                     const Routing& routing, std::string_view site, ExpertRoutes& routes) {
  const auto rows = static_cast<std::size_t>(tokens * routing.active);
  const auto active = static_cast<std::size_t>(routing.active);
  std::vector<std::int32_t> chosen(rows);
  std::vector<float> weights(rows);
  routes.tokens = tokens;
  routes.first.assign(static_cast<std::size_t>(routing.experts) + 1, 0);
  RowRoute row;
  for (std::int64_t t = 0; t < tokens; ++t) {
    require_finite(logits + t * stride, routing.experts, t, site);
    row.choose(logits + t * stride, routing);
    const float sum = routing.normalized ? row.total(routing.active) + routing.sum_offset() : 1.0f;
    for (std::size_t i = 0; i < active; ++i) {
      const std::int32_t expert = row.ids[i];
      const std::size_t at = static_cast<std::size_t>(t) * active + i;
      chosen[at] = expert;
      weights[at] = row.p[static_cast<std::size_t>(expert)] / sum * routing.weight_scale;
      if (routing.scales != nullptr) weights[at] *= routing.scales[expert];
      ++routes.first[static_cast<std::size_t>(expert) + 1];
    }
  }
  routes.experts.clear();
  for (std::size_t e = 0; e + 1 < routes.first.size(); ++e) {
    if (routes.first[e + 1] > 0) routes.experts.push_back(static_cast<std::int32_t>(e));
    routes.first[e + 1] += routes.first[e];
  }
  routes.token.resize(rows);
  routes.weight.resize(rows);
  std::vector<std::int64_t> next(routes.first.begin(), routes.first.end() - 1);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(chosen[i])]++);
    routes.token[at] = static_cast<std::int32_t>(i / active);
    routes.weight[at] = weights[i];
  }
}

void route_by_sigmoid(const float* logits, std::int64_t stride, std::int64_t tokens,
                      std::string_view site, ExpertRoutes& routes) {
  routes.tokens = tokens;
  routes.first = {0, tokens};
  routes.experts = {0};
  routes.token.resize(static_cast<std::size_t>(tokens));
  routes.weight.resize(static_cast<std::size_t>(tokens));
  std::iota(routes.token.begin(), routes.token.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    require_finite(logits + t * stride, 1, t, site);
    routes.weight[static_cast<std::size_t>(t)] = sigmoid(logits[t * stride]);
  }
}

}  // namespace

void route_rows(const Rows& logits, std::int64_t tokens, const Routing& routing,
                std::string_view site, ExpertRoutes& routes, ExpertRoutes* shared) {
  require_capacity(site, tokens, logits);
  ensure(logits.width == routing.experts + (shared != nullptr) && logits.values != nullptr &&
             routing.active >= 1 && routing.active <= routing.experts,
         site, ": logits of ", logits.width, " experts, expected ", routing.experts);
  route_by_scores(logits.values, logits.value_stride, tokens, routing, site, routes);
  if (shared == nullptr) return;
  route_by_sigmoid(logits.values + routing.experts, logits.value_stride, tokens, site, *shared);
}

}  // namespace leq
