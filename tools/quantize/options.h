// Flags of leq-quantize, and the run that they describe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/run/quantize.h"
#include "tools/common/options.h"

namespace leq {

const ToolSpec& quantize_tool();

struct QuantizeCommand {
  std::filesystem::path checkpoint;  // folder, or a GGUF file
  std::filesystem::path output;
  QuantizeOptions options;
};
// Throws Error naming the flags if two contradict each other or if a value is invalid.
QuantizeCommand quantize_command(const Options& options);

// The flags that control the search for bits (search_options.cpp).
std::vector<Option> search_flags();
// Throws Error if one of these flags is given without a search.
void require_no_search_flags(const Options& options);
// Throws Error naming flags that contradict each other.
SearchedBits searched_bits(const Options& options, const QuantizeOptions& checkpoint,
                           const ModelConfig& config);

// Parses "8G" or "500M" as the value of a flag.
std::uint64_t parse_size(std::string_view flag, const std::string& text);
// A text for calibration, search or the gate. Throws Error naming the file if it cannot be read, is
// empty or is not valid UTF-8.
std::string read_quantize_text(const std::string& path);

}  // namespace leq
