// The paper's claims, each checked against the measured results.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace leq {

enum class ClaimVerdict { holds, holds_in_part, does_not_hold, not_tried };
std::string_view verdict_text(ClaimVerdict verdict);  // "holds", "does not hold here", ...

struct Claim {
  std::string text;   // the paper's statement
  std::string place;  // "Table 1"
  ClaimVerdict verdict = ClaimVerdict::not_tried;
  std::string found;  // the measured values, in a sentence
};

// Checks the claims in the order of the paper. Claims without measurements are included as not
// tried, with the reason.
std::vector<Claim> try_claims(const Json& results);

}  // namespace leq
