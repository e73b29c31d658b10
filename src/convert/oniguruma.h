// Patterns of tokenizer.json have Oniguruma's syntax for Ruby; some of them have another meaning in
// other regex engines, without any error.
#pragma once

#include <string>
#include <string_view>

namespace leq {

// The pattern as Pattern (tokenizer/pattern.h) reads it: \h is a hexadecimal digit, {,n} is {0,n},
// \w has marks, ^, $ match at lines. Throws Error naming `source` and what has no equivalent.
std::string translated_oniguruma(std::string_view pattern, std::string_view source);

}  // namespace leq
