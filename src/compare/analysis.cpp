#include "compare/analysis.h"

#include <numeric>

namespace leq {

std::optional<double> result_number(const Json& results, const std::string& group,
                                    const std::string& spec, const std::string& key) {
  if (!results.contains(group) || !results[group].contains(spec)) return std::nullopt;
  const Json& entry = results[group][spec];
  if (!entry.contains(key) || !entry[key].is_number()) return std::nullopt;
  return entry[key].get<double>();
}

std::vector<double> result_list(const Json& results, const std::string& group,
                                const std::string& spec, const std::string& key) {
  if (!results.contains(group) || !results[group].contains(spec)) return {};
  const Json& entry = results[group][spec];
  return entry.contains(key) ? entry[key].get<std::vector<double>>() : std::vector<double>();
}

std::vector<std::string> compared_specs(const Json& results, bool with_base) {
  auto specs = results["candidates"].get<std::vector<std::string>>();
  if (with_base) specs.insert(specs.begin(), "base");
  return specs;
}

std::vector<PairOutcome> pair_outcomes(const Json& results, const std::string& key) {
  const std::vector<std::string> specs = compared_specs(results, false);
  const auto pairs = std::ssize(specs) * (std::ssize(specs) - 1) / 2;
  std::vector<PairOutcome> outcomes;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    for (std::size_t j = i + 1; j < specs.size(); ++j) {
      PairOutcome outcome = {.first = specs[i], .second = specs[j], .test = {}, .verdict = {}};
      outcome.test = paired_t_test(result_list(results, "quality", specs[i], key),
                                   result_list(results, "quality", specs[j], key));
      outcome.corrected = bonferroni(outcome.test.p, pairs);
      const bool differs = outcome.corrected < kSignificance;
      outcome.verdict = !differs                ? "no difference shown"
                        : outcome.test.mean < 0 ? "better"
                                                : "worse";
      outcomes.push_back(std::move(outcome));
    }
  }
  return outcomes;
}

std::optional<PairOutcome> pair_outcome(const std::vector<PairOutcome>& outcomes,
                                        const std::string& first, const std::string& second) {
  for (const PairOutcome& outcome : outcomes) {
    if (outcome.first == first && outcome.second == second) return outcome;
    if (outcome.first != second || outcome.second != first) continue;
    PairOutcome turned = outcome;
    std::swap(turned.first, turned.second);
    turned.test.mean = -outcome.test.mean;
    turned.test.t = -outcome.test.t;
    turned.test.effect = -outcome.test.effect;
    turned.test.confidence = {-outcome.test.confidence.high, -outcome.test.confidence.low};
    if (outcome.verdict == "better") turned.verdict = "worse";
    if (outcome.verdict == "worse") turned.verdict = "better";
    return turned;
  }
  return std::nullopt;
}

MeanInterval kl_interval(const Json& results, const std::string& group, const std::string& spec) {
  const std::vector<double> windows = result_list(results, group, spec, "window_kl");
  if (windows.empty()) return {};
  const double mean =
      std::accumulate(windows.begin(), windows.end(), 0.0) / static_cast<double>(windows.size());
  return {mean, bootstrap_mean(windows, kBootstrapSeed)};
}

}  // namespace leq
