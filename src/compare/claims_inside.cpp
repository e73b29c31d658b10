// Claims about speed, memory and model internals.
#include <algorithm>
#include <cmath>

#include "compare/claim_words.h"

namespace leq::claims {

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
                            fixed(generation, 2) + " times that of " +
                            results["file"]["base"]["type"].text() + ", medians on this processor.";
  const int held = (prompt >= kClaimed ? 1 : 0) + (generation >= kClaimed ? 1 : 0);
  return decided(base,
                 held == 2   ? ClaimVerdict::holds
                 : held == 1 ? ClaimVerdict::holds_in_part
                             : ClaimVerdict::does_not_hold,
                 found);
}

Claim simquant_cost(const Json& results) {
  const Claim base =
      claim("SimQuant: as fast as SmoothQuant, with less memory", "Table 2, Table 3");
  const std::string sim = spec_of(results, "simquant"), smooth = spec_of(results, "smoothquant");
  if (sim.empty() || smooth.empty()) return not_tried(base, "Both must be among the methods.");
  if (!has(results, "speed", sim) || !has(results, "speed", smooth)) {
    return not_tried(base, "No speeds.");
  }
  const auto tps = [&](const std::string& spec) {
    return results["speed"][spec]["generation"]["tps"].get<double>();
  };
  const auto memory = [&](const std::string& spec) {
    return results["speed"][spec]["memory_bytes"].get<double>();
  };
  constexpr double kAsFast = 0.95;
  const bool fast = tps(sim) >= kAsFast * tps(smooth);
  const bool small = memory(sim) < memory(smooth);
  return decided(base,
                 fast && small   ? ClaimVerdict::holds
                 : fast || small ? ClaimVerdict::holds_in_part
                                 : ClaimVerdict::does_not_hold,
                 "Generation at " + percent(tps(sim) / tps(smooth), 0) +
                     " of SmoothQuant's speed, " + percent(memory(sim) / memory(smooth), 0) +
                     " of its memory: SimQuant quantizes the cache and leaves the weights.");
}

Claim tighter_weights(const Json& results) {
  const Claim base =
      claim("SmoothQuant's weights are tighter and more symmetric", "section 4.7, Figure 1");
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
  return decided(base,
                 tight && symmetric   ? ClaimVerdict::holds
                 : tight || symmetric ? ClaimVerdict::holds_in_part
                                      : ClaimVerdict::does_not_hold,
                 "Mean kurtosis of the middle layer " + fixed(kurtosis / count, 2) + " beside " +
                     fixed(other / count, 2) + " of absmax (3 is normal), mean |skewness| " +
                     fixed(skew / count, 3) + " beside " + fixed(other_skew / count, 3) +
                     ": the method moves outliers into weights.");
}

Claim gemm_share(const Json& results) {
  const Claim base = claim(
      "SmoothQuant takes 49 % off the matrix products and adds little for "
      "quantization",
      "Table 5");
  const std::string smooth = spec_of(results, "smoothquant");
  if (smooth.empty()) return not_tried(base, "SmoothQuant was not among the methods.");
  if (!has(results, "speed", smooth)) return not_tried(base, "No speeds.");
  const auto part = [&](const std::string& spec, const char* name) {
    return results["speed"][spec]["generation_parts"][name].get<double>();
  };
  const double saved = 1 - part(smooth, "gemm") / part("base", "gemm");
  const double added = (part(smooth, "quant") - part("base", "quant")) / part("base", "step_ms");
  constexpr double kClaimed = 0.49, kLittle = 0.05;
  return decided(base,
                 saved >= kClaimed && added <= kLittle   ? ClaimVerdict::holds
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
  if (!has(results, "fusion", smooth)) return not_tried(base, why_not(results, "fusion"));
  const Json& entry = results["fusion"][smooth];
  const auto number = [&](const char* key) { return entry[key].get<double>(); };
  return decided(base,
                 number("ratio_high") < 1  ? ClaimVerdict::holds
                 : number("ratio_low") < 1 ? ClaimVerdict::holds_in_part
                                           : ClaimVerdict::does_not_hold,
                 "A norm of 256 rows that writes codes takes " + fixed(number("ratio"), 2) + " (" +
                     fixed(number("ratio_low"), 2) + " to " + fixed(number("ratio_high"), 2) +
                     ") of a norm and a pass that makes the codes "
                     "after it, on this processor, where rows stay in caches.");
}

Claim near_linear(const Json& results) {
  const Claim base = claim("Throughput scales nearly linearly over devices", "abstract");
  const std::string spec = "smoothquant:int8";
  if (!has(results, "ranks", spec)) return not_tried(base, why_not(results, "ranks"));
  if (results["ranks"][spec].size() < 2) {
    return not_tried(base, "One core, or one kv head: nothing to divide.");
  }
  const Json& rows = results["ranks"][spec];
  const Json& last = rows[rows.size() - 1];
  const double ratio = last["prompt"]["tps"].get<double>() / rows[0]["prompt"]["tps"].get<double>();
  return not_tried(base, "Ranks of one machine divide the same cores: " +
                             std::to_string(last["ranks"].get<int>()) +
                             " of them read a prompt at " + fixed(ratio, 2) +
                             " times the speed of one, with equal logits. More "
                             "processors than one machine has were not there.");
}

Claim cache_bound(const Json& results) {
  const Claim base = claim("The error of SimQuant is at most (max - min) / (2^b - 1)", "Theorem 2");
  if (!has(results, "cache_bound", "simquant:8")) {
    return not_tried(base, why_not(results, "cache_bound"));
  }
  const Json& rows = results["cache_bound"]["simquant:8"];
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

// Tested on the candidate with the largest errors, because a bound must hold for all.
Claim error_bound(const Json& results) {
  const Claim base = claim("The error after L layers grows as O(L e)", "Theorems 7 and 10");
  if (!results.contains("layers")) return not_tried(base, why_not(results, "layers"));
  double largest = 0, worst_gain = 0;
  std::string spec;
  std::int64_t depth = 0;
  for (const auto& [name, entry] : results["layers"].items()) {
    for (const Json& row : entry["layers"]) {
      worst_gain = std::max(worst_gain, row["gain"].get<double>());
      const double ratio = row["share_error"].get<double>() / row["share_linear"].get<double>();
      if (ratio <= largest) continue;
      largest = ratio;
      spec = name;
      depth = row["layer"].get<std::int64_t>();
    }
  }
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

}  // namespace leq::claims
