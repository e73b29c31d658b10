// The parts of JSON texts as grammar expressions: strings, numbers in a range, texts of a known
// form.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/grammar/builder.h"

namespace leq {

// Rules that all schemas use, made when they are first asked for.
class JsonParts {
 public:
  using Expr = GrammarBuilder::Expr;

  explicit JsonParts(GrammarBuilder& builder) : builder_(builder) {}

  Expr space();      // none, a space, or a new line with up to 20 spaces or tabs
  Expr character();  // one character of a string, escaped or not
  Expr string();     // any string, with its quotes
  Expr value();      // any value
  Expr object();     // any object
  Expr array();
  Expr null() { return builder_.text("null"); }
  Expr boolean() { return builder_.choice({builder_.text("true"), builder_.text("false")}); }
  Expr number();   // up to 20 digits before the point and after it, an exponent of 2
  Expr integer();  // up to 20 digits

  // One of these JSON texts, as a tree of their beginnings: of any number of them one state is
  // open.
  Expr one_of(std::span<const std::string> texts);

  // A string that is this text's beginning to its end, without quotes: as it is written in JSON.
  Expr written(std::string_view text);
  // One of these characters, as it is written in a JSON string.
  Expr written_chars(std::vector<CharRange> ranges);
  // A string that is none of these, without escapes; with its quotes.
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
  std::set<std::int32_t> made_;  // rules of the table above
};

// A regular expression as JSON Schema's `pattern` has it, for a string's inside as JSON writes it.
// Without ^ or $ it may stand anywhere. Throws Error naming `place` and what is not supported:
// groups that are looked at or referred to, \b, \p.
GrammarBuilder::Expr pattern_expression(GrammarBuilder& builder, JsonParts& parts,
                                        std::string_view pattern, std::string_view place);

// The pattern of a format (date, date-time, time, uuid); empty where the format says nothing here.
std::string_view format_pattern(std::string_view format);

}  // namespace leq
