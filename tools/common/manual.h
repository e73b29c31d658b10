// A tool's manual page, from its table of options.
#pragma once

#include <string>

#include "tools/common/options.h"

namespace leq {

// For man(1), section 1, in man(7)'s macros.
std::string manual_page(const ToolSpec& tool);

}  // namespace leq
