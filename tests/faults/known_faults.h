// Faults that a tool does not bear today: visible in every report, and to be mended. The list
// should be empty.
#pragma once

#include <span>
#include <string_view>

namespace leq::faults {

struct KnownFault {
  std::string_view name;  // stands in the case's name
  std::string_view rule;
  std::string_view text;  // stands in what the tool said; "" = any
  std::string_view why;
};

std::span<const KnownFault> known_faults();

}  // namespace leq::faults
