// Classes of cases that currently fail: every report shows them, and they are to be fixed. The list
// should be empty.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace leq::hostile {

struct KnownFailure {
  std::string_view kind;  // part of Case::kind
  std::string_view tool;  // "" = any
  std::string_view rule;  // Verdict::rule
  std::string_view text;  // part of the case's name or of the tool's output; "" = any
  std::string_view why;
};

std::span<const KnownFailure> known_failures();

}  // namespace leq::hostile
