// Refuses JSON in which an object has the same key twice: a table of tensors must not say two
// things about one name.
#pragma once

#include <string_view>

namespace leq {

// `text` has passed parse_json. Throws Error naming `source` and the key.
void require_unique_keys(std::string_view text, std::string_view source);

}  // namespace leq
