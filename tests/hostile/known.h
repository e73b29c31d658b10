// Classes of cases that fail today: visible in every report, and to be mended. The list should be
// empty.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace leq::hostile {

struct KnownFailure {
  std::string_view kind;  // stands in Case::kind
  std::string_view tool;  // "" = any
  std::string_view rule;  // of Verdict
  std::string_view text;  // stands in the case's name or in what the tool said; "" = any
  std::string_view why;
};

std::span<const KnownFailure> known_failures();

}  // namespace leq::hostile
