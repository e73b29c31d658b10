// Faults that a tool does not handle yet: every report shows them, and they are to be fixed. The
// list should be empty.
#pragma once

#include <span>
#include <string_view>

namespace leq::faults {

struct KnownFault {
  std::string_view name;  // part of the case's name
  std::string_view rule;
  std::string_view text;  // part of the tool's output; "" = any
  std::string_view why;
};

std::span<const KnownFault> known_faults();

}  // namespace leq::faults
