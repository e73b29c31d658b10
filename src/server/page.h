// The page to chat with: one file of src/server/page, in the program.
#pragma once

#include <string_view>

namespace leq {

std::string_view page_html();
// Its Content-Security-Policy: nothing but its own script and style, and no other server.
std::string_view page_policy();

}  // namespace leq
