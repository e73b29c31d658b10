// Reads texts for calibration, search and the gate of leq-quantize.
#pragma once

#include <string>

namespace leq {

// Throws Error naming the file if it cannot be read, is empty or is not valid UTF-8.
std::string read_quantize_text(const std::string& path);

}  // namespace leq
