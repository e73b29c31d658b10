// Texts that leq-quantize reads: to calibrate on, to search on, to judge by.
#pragma once

#include <string>

namespace leq {

// Throws Error naming the file where it cannot be read, is empty or no valid UTF-8.
std::string read_quantize_text(const std::string& path);

}  // namespace leq
