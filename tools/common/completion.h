// Shell completion scripts of a tool, generated from its table of options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/common/options.h"

namespace leq {

std::vector<std::string> completion_shells();  // bash, zsh, fish

// Returns the completion script for one of these shells.
std::string completion_script(const ToolSpec& tool, std::string_view shell);

}  // namespace leq
