// The server's chat page: one HTML document, compiled in from web.
#pragma once

#include <string_view>

namespace leq {

std::string_view page_html();
// The page's Content-Security-Policy, which allows only its own script, style and server.
std::string_view page_policy();

}  // namespace leq
