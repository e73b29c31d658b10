// Texts about a tool's options for its help, manual page and completions.
#pragma once

#include <string>
#include <vector>

#include "tools/common/options.h"

namespace leq {

// Returns the words to show: all spellings, but for a flag only those that change its default.
std::vector<std::string> shown_words(const Option& option);
// Returns the help text, including choices and default.
std::string explanation(const Option& option);

struct OptionGroup {
  std::string name;
  std::vector<Option> options;
};
// Returns the visible options by group, in the order of the groups' first appearance.
std::vector<OptionGroup> shown_groups(const ToolSpec& tool);

inline constexpr std::string_view kVariablesText =
    "Every option can also be set in the environment: LEQ_ARG_ and its long name, such as "
    "LEQ_ARG_THREADS=4. A flag wins.";

}  // namespace leq
