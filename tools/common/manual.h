// The manual page of a tool, generated from its table of options.
#pragma once

#include <string>

#include "tools/common/options.h"

namespace leq {

// Returns a page for section 1 of man(1), in macros of man(7).
std::string manual_page(const ToolSpec& tool);

}  // namespace leq
