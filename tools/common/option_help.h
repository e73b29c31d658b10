// What is told of a tool's options, in its help, its manual page and completions.
#pragma once

#include <string>
#include <vector>

#include "tools/common/options.h"

namespace leq {

// The words worth typing: all spellings, and of flags the words that leave the default.
std::vector<std::string> shown_words(const Option& option);
// Its help, with the choices and the default.
std::string explanation(const Option& option);

struct OptionGroup {
  std::string name;
  std::vector<Option> options;
};
// The options that are shown, in groups in the order of first appearance.
std::vector<OptionGroup> shown_groups(const ToolSpec& tool);

inline constexpr std::string_view kVariablesText =
    "Every option can also be set in the environment: LEQ_ARG_ and its long name, such as "
    "LEQ_ARG_THREADS=4. A flag wins.";

}  // namespace leq
