#include "compare/claims.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compare/claim_words.h"

namespace leq {
namespace {

using namespace claims;

constexpr double kNoticeable = 0.05;        // KL; smaller differences count as equal
constexpr double kSmallDegradation = 0.10;  // "under 10 %"

Claim best_accuracy(const Json& results) {
  const Claim base = claim("SmoothQuant has the best accuracy of all methods", "Table 1, Table 3");
  const std::string smooth = spec_of(results, "smoothquant");
  if (smooth.empty()) return not_tried(base, "SmoothQuant was not among the methods.");
  const std::vector<PairOutcome> outcomes = pair_outcomes(results, "window_kl");
  std::vector<std::string> better, equal;
  for (const std::string& other : compared_specs(results, false)) {
    if (other == smooth) continue;
    const auto outcome = pair_outcome(outcomes, other, smooth);
    if (outcome && outcome->verdict == "better") better.push_back(other);
    if (outcome && outcome->verdict == "no difference shown") equal.push_back(other);
  }
  const std::string own =
      "KL of " + smooth + ": " + nats(kl_interval(results, "quality", smooth).mean);
  if (!better.empty()) {
    return decided(base, ClaimVerdict::does_not_hold,
                   own +
                       "; nearer to the unquantized model, by paired tests with Bonferroni's "
                       "correction: " +
                       join(better) + ".");
  }
  if (!equal.empty()) {
    return decided(base, ClaimVerdict::holds_in_part,
                   own + "; no difference shown from " + join(equal) + ".");
  }
  return decided(base, ClaimVerdict::holds, own + ", less than every other method.");
}

Claim small_degradation(const Json& results) {
  const Claim base = claim("Perplexity grows by less than 10 % across all methods", "section 4.2");
  const double exact = *result_number(results, "quality", "base", "ppl");
  std::vector<std::string> over;
  double largest = -1;
  std::string worst;
  for (const std::string& spec : compared_specs(results, false)) {
    const double growth = *result_number(results, "quality", spec, "ppl") / exact - 1;
    if (growth > kSmallDegradation) over.push_back(spec + " (" + percent(growth) + ")");
    if (growth > largest) {
      largest = growth;
      worst = spec;
    }
  }
  const std::string most = "Most by " + worst + ": " + percent(largest) + " of " + fixed(exact, 3);
  if (over.empty()) return decided(base, ClaimVerdict::holds, most + ".");
  return decided(base, ClaimVerdict::does_not_hold, most + "; over 10 %: " + join(over) + ".");
}

Claim half_memory(const Json& results) {
  const Claim base = claim("8 bits halve the memory, 4 bits quarter it", "Table 2, section 4.4");
  const double unquantized = *result_number(results, "file", "base", "bits_per_weight");
  // The paper's baseline has 16 bits, so shares of a wider checkpoint are computed from 16 bits.
  const double exact = std::min(16.0, unquantized);
  std::vector<std::string> lines;
  bool all = true;
  for (const std::string& spec : compared_specs(results, false)) {
    const double bits = *result_number(results, "file", spec, "bits_per_weight");
    if (bits > 0.99 * unquantized) continue;  // only the KV cache is quantized
    const double share = bits / exact;
    const double claimed = bits < 7.5 ? 0.25 : 0.5;
    if (share > claimed * 1.25) {
      all = false;
      lines.push_back(spec + " " + percent(share, 0));
    }
  }
  const std::string unit = " of " + fixed(exact, 2) + " bits a weight";
  if (all)
    return decided(base, ClaimVerdict::holds,
                   "No file is a quarter above these shares" + unit + ".");
  return decided(
      base, ClaimVerdict::holds_in_part,
      "More than a quarter above: " + join(lines) + unit + " (scales, and tables kept at 8 bits).");
}

Claim less_calibration(const Json& results) {
  const Claim base = claim("87 % less calibration data is enough", "Table 3 (16 samples for 128)");
  if (!results.contains("calibration")) return not_tried(base, why_not(results, "calibration"));
  std::vector<std::string> found;
  int methods = 0, enough = 0;
  for (const std::string method : {"smoothquant:int8", "gptq"}) {
    std::vector<std::pair<std::int64_t, std::string>> points;
    for (const auto& [spec, quality] : results["calibration"].items()) {
      if (!spec.starts_with(method + "#")) continue;
      points.emplace_back(*parse_int(spec.substr(method.size() + 1)), spec);
    }
    std::ranges::sort(points);
    if (points.size() < 2) continue;
    ++methods;
    const auto [most, full] = points.back();
    auto few = points.front();
    for (const auto& point : points) {
      if (point.first * 8 <= most) few = point;  // 12.5 % of the text is 87 % less
    }
    const PairedTest test =
        paired_t_test(result_list(results, "calibration", few.second, "window_kl"),
                      result_list(results, "calibration", full, "window_kl"));
    const double relative = test.mean / kl_interval(results, "calibration", full).mean;
    const bool worse = test.p < kSignificance && relative > kNoticeable;
    enough += worse ? 0 : 1;
    found.push_back(method + ": " + std::to_string(few.first) + " for " + std::to_string(most) +
                    " windows changes KL by " + percent(relative) + " (p " + fixed(test.p, 3) +
                    ")");
  }
  if (methods == 0) return not_tried(base, "No curve over calibration windows.");
  return decided(base,
                 enough == methods ? ClaimVerdict::holds
                 : enough > 0      ? ClaimVerdict::holds_in_part
                                   : ClaimVerdict::does_not_hold,
                 join(found, "; ") + ".");
}

Claim online_scales(const Json& results) {
  const Claim base = claim("Online scales serve as well as calibrated ones", "section 3.4");
  const std::string online = "smoothquant:int8+online", fixed_scale = "smoothquant:int8+tensor";
  const std::string row = "smoothquant:int8+row";
  if (!has(results, "inputs", online) || !has(results, "inputs", fixed_scale) ||
      !has(results, "inputs", row)) {
    return not_tried(base, why_not(results, "inputs"));
  }
  const auto list = [&](const std::string& spec) {
    return result_list(results, "inputs", spec, "window_kl");
  };
  const PairedTest beside_fixed = paired_t_test(list(online), list(fixed_scale));
  const PairedTest beside_row = paired_t_test(list(online), list(row));
  const bool worse_fixed = beside_fixed.p < kSignificance && beside_fixed.mean > 0;
  const bool worse_row = beside_row.p < kSignificance && beside_row.mean > 0;
  const std::string found =
      "KL with a moving scale " + nats(kl_interval(results, "inputs", online).mean) + ", fixed " +
      nats(kl_interval(results, "inputs", fixed_scale).mean) + " (p " + fixed(beside_fixed.p, 3) +
      "), one for each token " + nats(kl_interval(results, "inputs", row).mean) + " (p " +
      fixed(beside_row.p, 3) + ").";
  return decided(base,
                 worse_fixed && worse_row   ? ClaimVerdict::does_not_hold
                 : worse_fixed || worse_row ? ClaimVerdict::holds_in_part
                                            : ClaimVerdict::holds,
                 found);
}

Claim long_contexts(const Json& results) {
  const Claim base = claim("SimQuant is superior for long contexts", "section 4.4, Figure 8");
  if (!has(results, "contexts", "simquant:4") || !has(results, "contexts", "smoothquant:int8")) {
    return not_tried(base, why_not(results, "contexts"));
  }
  const Json& cache = results["contexts"]["simquant:4"];
  const Json& smooth = results["contexts"]["smoothquant:int8"];
  if (cache.size() < 2 || smooth.size() != cache.size()) {
    return not_tried(base, "The text or the model's context has one length only.");
  }
  const auto kl = [](const Json& rows, std::size_t i) { return rows[i]["kl_mean"].get<double>(); };
  const std::size_t last = cache.size() - 1;
  const double growth = kl(cache, last) / kl(cache, 0), other = kl(smooth, last) / kl(smooth, 0);
  const bool grows_less = growth <= other;
  const bool nearer = kl(cache, last) < kl(smooth, last);
  return decided(base,
                 grows_less && nearer   ? ClaimVerdict::holds
                 : grows_less || nearer ? ClaimVerdict::holds_in_part
                                        : ClaimVerdict::does_not_hold,
                 "At " + std::to_string(cache[last]["context"].get<std::int64_t>()) +
                     " positions KL of a 4-bit cache " + nats(kl(cache, last)) +
                     ", of SmoothQuant " + nats(kl(smooth, last)) +
                     "; from the shortest context on they change " + fixed(growth, 2) + " and " +
                     fixed(other, 2) + " times.");
}

Claim significant(const Json& results) {
  const Claim base = claim("All differences are significant, p < 0.01", "appendix A.4");
  const std::vector<PairOutcome> outcomes = pair_outcomes(results, "window_nll");
  std::int64_t significant_pairs = 0;
  for (const PairOutcome& outcome : outcomes) significant_pairs += outcome.corrected < 0.01 ? 1 : 0;
  if (outcomes.empty()) return not_tried(base, "One method alone.");
  const auto all = std::ssize(outcomes);
  return decided(base,
                 significant_pairs == all ? ClaimVerdict::holds
                 : significant_pairs > 0  ? ClaimVerdict::holds_in_part
                                          : ClaimVerdict::does_not_hold,
                 std::to_string(significant_pairs) + " of " + std::to_string(all) +
                     " pairs differ in log-likelihood at p < 0.01 after Bonferroni's correction.");
}

Claim larger_models(const Json&) {
  return not_tried(claim("Larger models are more robust to quantization", "section 4.2"),
                   "A page is about one model; compare the pages of two.");
}

Claim hybrids(const Json& results) {
  const Claim base = claim("Serves diverse architectures, hybrids among them", "section 6");
  const Json& model = results["model"];
  const auto recurrent = model["recurrent_layers"].get<std::int64_t>();
  const auto layers = model["layers"].get<std::int64_t>();
  if (recurrent == 0) return not_tried(base, "This model has attention in every layer.");
  const std::vector<std::string> specs = compared_specs(results, false);
  double least = 1e300, largest = 0;
  for (const std::string& spec : specs) {
    const double kl = kl_interval(results, "quality", spec).mean;
    least = std::min(least, kl);
    largest = std::max(largest, kl);
  }
  const std::string found = std::to_string(recurrent) + " of " + std::to_string(layers) +
                            " layers are recurrent; " + std::to_string(specs.size()) +
                            " methods quantize them, KL " + nats(least) + " to " + nats(largest);
  const auto missing = results["not_measured"].size();
  if (missing == 0) return decided(base, ClaimVerdict::holds, found + ".");
  return decided(base, ClaimVerdict::holds_in_part,
                 found + "; left out: " + std::to_string(missing) + " measurements.");
}

}  // namespace

std::string_view verdict_text(ClaimVerdict verdict) {
  constexpr std::array<std::string_view, 4> kTexts = {"holds", "holds in part",
                                                      "does not hold here", "not tried"};
  return kTexts[static_cast<std::size_t>(verdict)];
}

std::vector<Claim> try_claims(const Json& results) {
  std::vector<Claim> claims;
  for (const auto tried :
       {best_accuracy, small_degradation, larger_models, faster, simquant_cost, half_memory,
        less_calibration, long_contexts, tighter_weights, gemm_share, fused, online_scales,
        near_linear, significant, cache_bound, error_bound, hybrids}) {
    claims.push_back(tried(results));
  }
  return claims;
}

}  // namespace leq
