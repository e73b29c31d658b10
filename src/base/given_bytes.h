// Sizes that a user gave, told back as they were typed.
#pragma once

#include <cstdint>
#include <string>

namespace leq {

// The binary unit that parse_bytes reads, and decimal units: "24G (25.8 GB)"; only the latter if no
// binary unit expresses the size in two decimals.
std::string given_bytes(std::uint64_t bytes);

}  // namespace leq
