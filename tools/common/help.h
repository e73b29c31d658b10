// Help, manual page and shell completions of a tool, generated from its table of options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/common/options.h"

namespace leq {

// Returns the tool's own options and those common to all tools: --help, --version ...
std::vector<Option> all_options(const ToolSpec& tool);
// The text of --help: at most 80 columns wide; groups in the order of first appearance.
std::string help_text(const ToolSpec& tool);
// Returns a page for section 1 of man(1), in macros of man(7).
std::string manual_page(const ToolSpec& tool);

std::vector<std::string> completion_shells();  // bash, zsh, fish
// Returns the completion script for one of these shells.
std::string completion_script(const ToolSpec& tool, std::string_view shell);

}  // namespace leq
