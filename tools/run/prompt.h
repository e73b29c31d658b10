// Reads a prompt from -p, -f or a pipe, and checks its text.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace leq::run {

// Processes \n \t \r \" \' \\ and \xHH; other backslashes are unchanged.
std::string process_escapes(std::string_view text);

// Throws Error naming `what` and the offset of the first byte that is not UTF-8.
void check_utf8(std::string_view text, std::string_view what);

// Returns the text of a prompt file ("-": standard input), without a newline at its end. Throws
// Error if it cannot be read, is empty, too large or not UTF-8.
std::string read_prompt_text(const std::filesystem::path& path);

// Returns all of standard input, checked like a file.
std::string read_prompt_from_stdin();

}  // namespace leq::run
