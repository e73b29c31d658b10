// Grammar expressions for parts of JSON texts: strings, numbers in a range, strings of a known
// format.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/grammar/builder.h"

namespace leq {

// The rules that all schemas share, each created on first use.
class JsonParts {
 public:
  using Expr = GrammarBuilder::Expr;

  explicit JsonParts(GrammarBuilder& builder) : builder_(builder) {}

  Expr space();      // nothing, one space, or a line break with up to 20 spaces or tabs
  Expr character();  // one character of a string, which may be escaped
  Expr string();     // any string, with its quotes
  Expr value();      // any value
  Expr object();     // any object
  Expr array();
  Expr null() { return builder_.text("null"); }
  Expr boolean() { return builder_.choice({builder_.text("true"), builder_.text("false")}); }
  Expr number();   // up to 20 digits before and after the point, a 2-digit exponent
  Expr integer();  // up to 20 digits

  // One of these JSON texts, as a prefix tree, so that only one automaton state is active
  // regardless of their number.
  Expr one_of(std::span<const std::string> texts);

  // The characters of this text as JSON writes them in a string, without quotes.
  Expr written(std::string_view text);
  // One of these characters, as JSON writes it in a string.
  Expr written_chars(std::vector<CharRange> ranges);
  // A quoted string without escapes that differs from all of these.
  Expr string_but(std::vector<std::string_view> taken);

 private:
  Expr rule(std::string_view name, Expr (JsonParts::*make)());
  Expr make_string();
  Expr make_character();
  Expr make_value();
  Expr make_object();
  Expr make_array();
  Expr make_space();

  GrammarBuilder& builder_;
  std::set<std::int32_t> made_;  // shared rules that are already defined
};

// A regular expression of JSON Schema's `pattern`, for the inside of a string as written in JSON.
// Without ^ or $ it may match anywhere in the string. Throws Error naming `place` and the
// unsupported syntax: lookaround, backreferences, \b, \p.
GrammarBuilder::Expr pattern_expression(GrammarBuilder& builder, JsonParts& parts,
                                        std::string_view pattern, std::string_view place);

// The pattern of a format (date, date-time, time, uuid); empty if the format is not supported.
std::string_view format_pattern(std::string_view format);

}  // namespace leq
