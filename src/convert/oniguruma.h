// Patterns of tokenizer.json are Oniguruma's, in Ruby's syntax, and some of them mean something
// else elsewhere without any error.
#pragma once

#include <string>
#include <string_view>

namespace leq {

// The pattern as Pattern (tokenizer/pattern.h) reads it: \h is a hexadecimal digit, {,n} is {0,n},
// \w has marks, ^ and $ match at each line. Throws Error naming `source` and what has no equal.
std::string translated_oniguruma(std::string_view pattern, std::string_view source);

}  // namespace leq
