// Patterns of tokenizer.json have Oniguruma's syntax for Ruby. Other regex engines accept some of
// these patterns but interpret them differently.
#pragma once

#include <string>
#include <string_view>

namespace leq {

// The pattern for Pattern (tokenizer/pattern.h): \h becomes [0-9a-fA-F], {,n} becomes {0,n}; \w has
// marks, too; ^ and $ match at each line. Throws Error naming `source` and what has no equivalent.
std::string translated_oniguruma(std::string_view pattern, std::string_view source);

}  // namespace leq
