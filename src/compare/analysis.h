// Statistics derived from measured results: paired differences and tests, intervals, ratios. All
// are pure functions of the results' JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/statistics.h"

namespace leq {

inline constexpr double kSignificance = 0.05;
inline constexpr std::uint64_t kBootstrapSeed = 2406;

// The value of results[group][spec][key]; nullopt if it is absent or null.
std::optional<double> result_number(const Json& results, const std::string& group,
                                    const std::string& spec, const std::string& key);
std::vector<double> result_list(const Json& results, const std::string& group,
                                const std::string& spec, const std::string& key);

// "base" (if `with_base`), then the candidates in the order of the request.
std::vector<std::string> compared_specs(const Json& results, bool with_base);

// A paired test of two candidates over the windows, on KL divergence or on log-likelihood.
struct PairOutcome {
  std::string first, second;
  PairedTest test;       // first - second, nats
  double corrected = 1;  // Bonferroni, over all pairs
  // "better" or "worse" (the first candidate than the second), or "no difference shown".
  std::string verdict;
};
std::vector<PairOutcome> pair_outcomes(const Json& results, const std::string& key);
// Finds the outcome of a pair given in either order, and returns it as first - second.
std::optional<PairOutcome> pair_outcome(const std::vector<PairOutcome>& outcomes,
                                        const std::string& first, const std::string& second);

// Mean KL divergence with a bootstrap interval over windows.
struct MeanInterval {
  double mean = 0;
  Interval interval;
};
MeanInterval kl_interval(const Json& results, const std::string& group, const std::string& spec);

}  // namespace leq
