// Shared helpers to decide and describe the claims.
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"
#include "compare/analysis.h"
#include "compare/claims.h"

namespace leq::claims {

inline std::string percent(double share, int decimals = 1) {
  return fixed(100 * share, decimals) + " %";
}

inline std::string nats(double value) { return fixed(value, 5) + " nats"; }

inline Claim claim(const char* text, const char* place) { return {.text = text, .place = place}; }

inline Claim not_tried(Claim claim, const std::string& why) {
  claim.verdict = ClaimVerdict::not_tried;
  claim.found = why;
  return claim;
}

inline Claim decided(Claim claim, ClaimVerdict verdict, const std::string& found) {
  claim.verdict = verdict;
  claim.found = found;
  return claim;
}

inline ClaimVerdict whether(bool holds) {
  return holds ? ClaimVerdict::holds : ClaimVerdict::does_not_hold;
}

inline bool has(const Json& results, const std::string& group, const std::string& spec) {
  return results.contains(group) && results[group].contains(spec);
}

// Why a value is missing: the model or machine does not support it, or it was not requested.
inline std::string why_not(const Json& results, const std::string& group) {
  for (const Json& entry : results["not_measured"]) {
    if (entry["measurement"].text() == group) return entry["reason"].text() + ".";
  }
  return "Not measured.";
}

// The candidate of a method, such as SmoothQuant, in this comparison: with int8 if there is one,
// otherwise the method's first candidate; "" if there is none.
inline std::string spec_of(const Json& results, std::string_view method) {
  std::string found;
  for (const std::string& spec : compared_specs(results, false)) {
    if (!spec.starts_with(method) || spec.find('#') != spec.npos) continue;
    const char next = spec.size() > method.size() ? spec[method.size()] : ':';
    if (next == ':' && found.empty()) found = spec;
  }
  return found;
}

// Claims about speed, memory and model internals, defined in claims_inside.cpp.
Claim faster(const Json& results);
Claim simquant_cost(const Json& results);
Claim tighter_weights(const Json& results);
Claim gemm_share(const Json& results);
Claim fused(const Json& results);
Claim near_linear(const Json& results);
Claim cache_bound(const Json& results);
Claim error_bound(const Json& results);

}  // namespace leq::claims
