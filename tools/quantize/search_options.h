// Flags of leq-quantize that control the search for bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipes/quantize_by_search.h"
#include "tools/common/options.h"

namespace leq {

std::vector<Option> search_flags();
// Throws Error if one of these flags is given without a search.
void require_no_search_flags(const Options& options);

// Throws Error naming flags that contradict each other.
SearchedBits searched_bits(const Options& options, const CheckpointOptions& checkpoint,
                           const ModelConfig& config);

// Reads a text for calibration, search or the gate. Throws Error naming the file if it cannot be
// read, is empty or is not valid UTF-8.
std::string read_quantize_text(const std::string& path);

// Parses "8G" or "500M" as the value of a flag.
std::uint64_t parse_size(std::string_view flag, const std::string& text);

}  // namespace leq
