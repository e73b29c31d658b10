// Texts for a model that users type as values of flags.
#pragma once

#include <string>
#include <string_view>

namespace leq {

// Processes \n \t \r \" \' \\ and \xHH; other backslashes are unchanged.
std::string process_escapes(std::string_view text);

// Throws Error naming `what` and the offset of the first byte that is not UTF-8.
void check_utf8(std::string_view text, std::string_view what);

}  // namespace leq
