// Refuses JSON in which an object has the same key twice: a table of tensors must not say two
// things about one name.
#pragma once

#include <cstddef>
#include <string_view>

namespace leq {

inline constexpr std::size_t kMaxKeys = 1'000'000;  // of one object

// Reads `text` as far as it is JSON, without keeping it; parse_json judges the rest. Throws Error
// naming `source` and the key.
void require_unique_keys(std::string_view text, std::string_view source);

}  // namespace leq
