// The chat page of the server: one HTML document from src/server/page, compiled in.
#pragma once

#include <string_view>

namespace leq {

std::string_view page_html();
// The page's Content-Security-Policy: only its own script and style, and no other server.
std::string_view page_policy();

}  // namespace leq
