// Splits a template's text into tokens, and trims white space like Jinja with trim_blocks and
// lstrip_blocks, which templates in model repositories expect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace leq::jinja {

struct Token {
  enum class Type : std::uint8_t {
    data,  // text outside of all tags
    block_begin,
    block_end,
    print_begin,
    print_end,
    name,
    text,  // a string literal
    integer,
    real,
    sign,  // an operator or a bracket
    end    // end of the template
  };
  Type type = Type::end;
  std::string text;  // the token's value: a literal without quotes and escapes
  std::uint32_t line = 1;

  bool is_name(std::string_view name) const { return type == Type::name && text == name; }
  bool is_sign(std::string_view sign) const { return type == Type::sign && text == sign; }
};

// Throws Error naming `source`, the line and the unexpected text. The last token is `end`.
std::vector<Token> tokenize(std::string_view source_text, std::string_view source);

}  // namespace leq::jinja
