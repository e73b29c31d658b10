#include "compare/claims.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "compare/analysis.h"

namespace leq {
namespace {

constexpr double kNoticeable = 0.05;        // of KL: less is as good
constexpr double kSmallDegradation = 0.10;  // "under 10 %"

std::string percent(double share, int decimals = 1) { return fixed(100 * share, decimals) + " %"; }

std::string nats(double value) { return fixed(value, 5) + " nats"; }

Claim claim(const char* text, const char* place) { return {.text = text, .place = place}; }

Claim not_tried(Claim claim, const std::string& why) {
  claim.verdict = ClaimVerdict::not_tried;
  claim.found = why;
  return claim;
}

Claim decided(Claim claim, ClaimVerdict verdict, const std::string& found) {
  claim.verdict = verdict;
  claim.found = found;
  return claim;
}

ClaimVerdict whether(bool holds) {
  return holds ? ClaimVerdict::holds : ClaimVerdict::does_not_hold;
}

bool has(const Json& results, const std::string& group, const std::string& spec) {
  return results.contains(group) && results[group].contains(spec);
}

// SmoothQuant as it was compared: with int8, or the first of its candidates; "" where there is none.
std::string spec_of(const Json& results, std::string_view method) {
  std::string found;
  for (const std::string& spec : compared_specs(results, false)) {
    if (!spec.starts_with(method) || spec.find('#') != spec.npos) continue;
    const char next = spec.size() > method.size() ? spec[method.size()] : ':';
    if (next == ':' && found.empty()) found = spec;
  }
  return found;
}

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
  const std::string own = "KL of " + smooth + ": " + nats(kl_interval(results, "quality", smooth).mean);
  if (!better.empty()) {
    return decided(base, ClaimVerdict::does_not_hold,
                   own + "; nearer to the unquantized model, by paired tests with Bonferroni's "
                         "correction: " + join(better) + ".");
  }
  if (!equal.empty()) {
    return decided(base, ClaimVerdict::holds_in_part,
                   own + "; no difference shown from " + join(equal) + ".");
  }
  return decided(base, ClaimVerdict::holds, own + ", less than every other method.");
}

Claim small_degradation(const Json& results) {
  const Claim base =
      claim("Perplexity grows by less than 10 % across all methods", "section 4.2");
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

Claim faster(const Json& results) {
  const Claim base = claim("SmoothQuant runs 1.7 times as fast as the unquantized model",
                           "Table 2 (2,156 against 1,247 tokens/s)");
  const std::string smooth = spec_of(results, "smoothquant");
  if (smooth.empty()) return not_tried(base, "SmoothQuant was not among the methods.");
  if (!has(results, "speed", smooth)) return not_tried(base, "No speeds.");
  const auto ratio = [&](const char* test) {
    return results["speed"][smooth][test]["tps"].get<double>() /
           results["speed"]["base"][test]["tps"].get<double>();
  };
  const double prompt = ratio("prompt"), generation = ratio("generation");
  constexpr double kClaimed = 1.7;
  const std::string found = "Prompt " + fixed(prompt, 2) + " times, generation " +
                            fixed(generation, 2) + " times, medians on this processor.";
  const int held = (prompt >= kClaimed ? 1 : 0) + (generation >= kClaimed ? 1 : 0);
  return decided(base, held == 2   ? ClaimVerdict::holds
                       : held == 1 ? ClaimVerdict::holds_in_part
                                   : ClaimVerdict::does_not_hold,
                 found);
}

Claim simquant_cost(const Json& results) {
  const Claim base = claim("SimQuant: as fast as SmoothQuant, with less memory",
                           "Table 2, Table 3");
  const std::string sim = spec_of(results, "simquant"), smooth = spec_of(results, "smoothquant");
  if (sim.empty() || smooth.empty()) return not_tried(base, "Both must be among the methods.");
  if (!has(results, "speed", smooth)) return not_tried(base, "No speeds.");
  const auto tps = [&](const std::string& spec) {
    return results["speed"][spec]["generation"]["tps"].get<double>();
  };
  const auto memory = [&](const std::string& spec) {
    return results["speed"][spec]["memory_bytes"].get<double>();
  };
  constexpr double kAsFast = 0.95;
  const bool fast = tps(sim) >= kAsFast * tps(smooth);
  const bool small = memory(sim) < memory(smooth);
  return decided(base, fast && small ? ClaimVerdict::holds
                       : fast || small ? ClaimVerdict::holds_in_part
                                       : ClaimVerdict::does_not_hold,
                 "Generation at " + percent(tps(sim) / tps(smooth), 0) + " of SmoothQuant's speed, " +
                     percent(memory(sim) / memory(smooth), 0) +
                     " of its memory: SimQuant quantizes the cache and leaves the weights.");
}

Claim half_memory(const Json& results) {
  const Claim base = claim("8 bits halve the memory, 4 bits quarter it", "Table 2, section 4.4");
  const double exact = *result_number(results, "file", "base", "bits_per_weight");
  std::vector<std::string> lines;
  bool all = true;
  for (const std::string& spec : compared_specs(results, false)) {
    const double bits = *result_number(results, "file", spec, "bits_per_weight");
    const double share = bits / exact;
    if (share > 0.99) continue;  // a cache: no weight is quantized
    const double claimed = bits < 7.5 ? 0.25 : 0.5;
    if (share > claimed * 1.25) {
      all = false;
      lines.push_back(spec + " " + percent(share, 0));
    }
  }
  const std::string unit = " of the unquantized " + fixed(exact, 2) + " bits a weight";
  if (all) return decided(base, ClaimVerdict::holds, "No file is a quarter above these shares" + unit + ".");
  return decided(base, ClaimVerdict::holds_in_part,
                 "More than a quarter above: " + join(lines) + unit +
                     " (scales, and tables kept at 8 bits).");
}

Claim less_calibration(const Json& results) {
  const Claim base = claim("87 % less calibration data is enough", "Table 3 (16 samples for 128)");
  if (!results.contains("calibration")) return not_tried(base, "No curves.");
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
      if (point.first * 8 <= most) few = point;  // 12.5 % of the text: 87 % less
    }
    const PairedTest test =
        paired_t_test(result_list(results, "calibration", few.second, "window_kl"),
                      result_list(results, "calibration", full, "window_kl"));
    const double relative = test.mean / kl_interval(results, "calibration", full).mean;
    const bool worse = test.p < kSignificance && relative > kNoticeable;
    enough += worse ? 0 : 1;
    found.push_back(method + ": " + std::to_string(few.first) + " for " + std::to_string(most) +
                    " windows changes KL by " + percent(relative) + " (p " + fixed(test.p, 3) + ")");
  }
  if (methods == 0) return not_tried(base, "No curve over calibration windows.");
  return decided(base, enough == methods ? ClaimVerdict::holds
                       : enough > 0      ? ClaimVerdict::holds_in_part
                                         : ClaimVerdict::does_not_hold,
                 join(found, "; ") + ".");
}

Claim online_scales(const Json& results) {
  const Claim base = claim("Online scales serve as well as calibrated ones", "section 3.4");
  const std::string online = "smoothquant:int8+online", fixed_scale = "smoothquant:int8+tensor";
  const std::string row = "smoothquant:int8+row";
  if (!has(results, "inputs", online)) return not_tried(base, "Not measured.");
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
  return decided(base, worse_fixed && worse_row ? ClaimVerdict::does_not_hold
                       : worse_fixed || worse_row ? ClaimVerdict::holds_in_part
                                                  : ClaimVerdict::holds,
                 found);
}

Claim long_contexts(const Json& results) {
  const Claim base = claim("SimQuant is superior for long contexts", "section 4.4, Figure 8");
  if (!has(results, "contexts", "simquant:4")) return not_tried(base, "Not measured.");
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
  return decided(base, grows_less && nearer   ? ClaimVerdict::holds
                       : grows_less || nearer ? ClaimVerdict::holds_in_part
                                              : ClaimVerdict::does_not_hold,
                 "At " + std::to_string(cache[last]["context"].get<std::int64_t>()) +
                     " positions KL of a 4-bit cache " + nats(kl(cache, last)) + ", of SmoothQuant " +
                     nats(kl(smooth, last)) + "; from the shortest context on they change " +
                     fixed(growth, 2) + " and " + fixed(other, 2) + " times.");
}

// Decides by the candidate that makes most errors: a bound must hold for all.
Claim error_bound(const Json& results) {
  const Claim base = claim("The error after L layers grows as O(L e)", "Theorems 7 and 10");
  if (!results.contains("layers")) return not_tried(base, "No errors by layer.");
  double largest = 0, worst_gain = 0;
  std::string spec;
  std::int64_t depth = 0;
  for (const auto& [name, entry] : results["layers"].items()) {
    if (!entry.contains("layers")) continue;
    for (const Json& row : entry["layers"]) {
      worst_gain = std::max(worst_gain, row["gain"].get<double>());
      const double ratio = row["share_error"].get<double>() / row["share_linear"].get<double>();
      if (ratio <= largest) continue;
      largest = ratio;
      spec = name;
      depth = row["layer"].get<std::int64_t>();
    }
  }
  if (spec.empty()) return not_tried(base, "No errors by layer.");
  const std::string gain = " The largest gain of a layer is " + fixed(worst_gain, 2) +
                           ": with C > 1 the proof's own C^L grows exponentially.";
  if (largest <= 1) {
    return decided(base, worst_gain > 1 ? ClaimVerdict::holds_in_part : ClaimVerdict::holds,
                   "Measured errors are at most " + fixed(largest, 2) +
                       " of L times the largest error of a layer." + gain);
  }
  return decided(base, ClaimVerdict::does_not_hold,
                 spec + " has " + fixed(largest, 2) +
                     " times L times the largest error of a layer after layer " +
                     std::to_string(depth) + "." + gain);
}

Claim cache_bound(const Json& results) {
  const Claim base = claim("The error of SimQuant is at most (max - min) / (2^b - 1)", "Theorem 2");
  if (!has(results, "cache_bound", "simquant:8")) return not_tried(base, "Not measured.");
  const Json& rows = results["cache_bound"]["simquant:8"];
  if (!rows.is_array() || rows.empty()) return not_tried(base, "Not measured.");
  double largest = 0;
  for (const Json& row : rows) {
    for (const char* key : {"share_8", "share_4", "share_2"}) {
      largest = std::max(largest, row[key].get<double>());
    }
  }
  return decided(base, whether(largest <= 1),
                 "Largest error: " + fixed(largest, 3) +
                     " of the bound, which is loose by 2: rounding errs by half a step.");
}

Claim tighter_weights(const Json& results) {
  const Claim base = claim("SmoothQuant's weights are tighter and more symmetric",
                           "section 4.7, Figure 1");
  const std::string smooth = spec_of(results, "smoothquant"), plain = spec_of(results, "absmax");
  if (smooth.empty() || plain.empty() || !has(results, "weights", smooth) ||
      !has(results, "weights", plain)) {
    return not_tried(base, "SmoothQuant and absmax must both be among the methods.");
  }
  double kurtosis = 0, other = 0, skew = 0, other_skew = 0;
  std::int64_t parts = 0;
  for (const Json& part : results["weights"][smooth]["parts"]) {
    kurtosis += part["kurtosis"].get<double>();
    skew += std::abs(part["skewness"].get<double>());
    ++parts;
  }
  for (const Json& part : results["weights"][plain]["parts"]) {
    other += part["kurtosis"].get<double>();
    other_skew += std::abs(part["skewness"].get<double>());
  }
  const auto count = static_cast<double>(std::max<std::int64_t>(1, parts));
  const bool tight = kurtosis < other, symmetric = skew < other_skew;
  return decided(base, tight && symmetric   ? ClaimVerdict::holds
                       : tight || symmetric ? ClaimVerdict::holds_in_part
                                            : ClaimVerdict::does_not_hold,
                 "Mean kurtosis of the middle layer " + fixed(kurtosis / count, 2) + " beside " +
                     fixed(other / count, 2) + " of absmax (3 is normal), mean |skewness| " +
                     fixed(skew / count, 3) + " beside " + fixed(other_skew / count, 3) +
                     ": the method moves outliers into weights.");
}

Claim gemm_share(const Json& results) {
  const Claim base = claim("SmoothQuant takes 49 % off the matrix products and adds little for "
                           "quantization", "Table 5");
  const std::string smooth = spec_of(results, "smoothquant");
  if (smooth.empty()) return not_tried(base, "SmoothQuant was not among the methods.");
  if (!has(results, "speed", smooth)) return not_tried(base, "No speeds.");
  const auto part = [&](const std::string& spec, const char* name) {
    return results["speed"][spec]["generation_parts"][name].get<double>();
  };
  const double saved = 1 - part(smooth, "gemm") / part("base", "gemm");
  const double added = (part(smooth, "quant") - part("base", "quant")) / part("base", "step_ms");
  constexpr double kClaimed = 0.49, kLittle = 0.05;
  return decided(base, saved >= kClaimed && added <= kLittle ? ClaimVerdict::holds
                       : saved >= kClaimed || added <= kLittle ? ClaimVerdict::holds_in_part
                                                               : ClaimVerdict::does_not_hold,
                 "Matrix products of a generated token take " + percent(1 - saved, 0) +
                     " of the unquantized time (the paper: 51 %); norms and quantization add " +
                     percent(added, 1) + " of its step.");
}

Claim fused(const Json& results) {
  const Claim base = claim("Fused quantization costs less than kernels of its own",
                           "sections 3.2 and 3.4, Theorems 6 and 9");
  const std::string smooth = "smoothquant:int8";
  if (!has(results, "fusion", smooth)) return not_tried(base, "Not measured.");
  const Json& entry = results["fusion"][smooth];
  if (entry.contains("reason")) return not_tried(base, entry["reason"].text() + ".");
  const auto number = [&](const char* key) { return entry[key].get<double>(); };
  return decided(base, number("ratio_high") < 1  ? ClaimVerdict::holds
                       : number("ratio_low") < 1 ? ClaimVerdict::holds_in_part
                                                 : ClaimVerdict::does_not_hold,
                 "A norm of 256 rows that writes codes takes " + fixed(number("ratio"), 2) +
                     " (" + fixed(number("ratio_low"), 2) + " to " +
                     fixed(number("ratio_high"), 2) + ") of a norm and a pass that makes the codes "
                     "after it, on this processor, where rows stay in caches.");
}

Claim near_linear(const Json& results) {
  const Claim base = claim("Throughput scales nearly linearly over devices", "abstract");
  const std::string spec = "smoothquant:int8";
  if (!has(results, "ranks", spec) || results["ranks"][spec].size() < 2) {
    return not_tried(base, "One core, or one kv head: nothing to divide.");
  }
  const Json& rows = results["ranks"][spec];
  const Json& last = rows[rows.size() - 1];
  const double ratio = last["prompt"]["tps"].get<double>() / rows[0]["prompt"]["tps"].get<double>();
  return not_tried(base, "Ranks of one machine divide the same cores: " +
                             std::to_string(last["ranks"].get<int>()) + " of them read a prompt at " +
                             fixed(ratio, 2) + " times the speed of one, with equal logits. More "
                             "processors than one machine has were not there.");
}

Claim significant(const Json& results) {
  const Claim base = claim("All differences are significant, p < 0.01", "appendix A.4");
  const std::vector<PairOutcome> outcomes = pair_outcomes(results, "window_nll");
  std::int64_t significant_pairs = 0;
  for (const PairOutcome& outcome : outcomes) significant_pairs += outcome.corrected < 0.01 ? 1 : 0;
  if (outcomes.empty()) return not_tried(base, "One method alone.");
  const auto all = std::ssize(outcomes);
  return decided(base, significant_pairs == all ? ClaimVerdict::holds
                       : significant_pairs > 0  ? ClaimVerdict::holds_in_part
                                                : ClaimVerdict::does_not_hold,
                 std::to_string(significant_pairs) + " of " + std::to_string(all) +
                     " pairs differ in log-likelihood at p < 0.01 after Bonferroni's correction.");
}

Claim larger_models(const Json&) {
  return not_tried(claim("Larger models are more robust to quantization", "section 4.2"),
                   "A page is about one model; compare the pages of two.");
}

Claim hybrids(const Json&) {
  return not_tried(claim("Serves diverse architectures, hybrids among them", "section 6"),
                   "A page is about one model: run it on a hybrid one.");
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
