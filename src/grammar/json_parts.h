// Grammar expressions for parts of JSON texts: strings, numbers in a range, strings of a known
// format.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/grammar.h"

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
  Expr of_type(std::string_view type);  // any value of this type; of a name that is no type: any
  Expr object();                        // any object
  Expr array();
  // An array that begins with elements `first` and continues with `rest`, if there is any.
  Expr list(const std::vector<Expr>& first, std::optional<Expr> rest, std::int64_t least,
            std::int64_t most);
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
  // A quoted string that differs from all of these.
  Expr string_but(std::vector<std::string_view> taken);
  // A text of these characters, not empty, that differs from all of these.
  Expr name_but(const std::vector<std::string_view>& taken, const std::vector<CharRange>& chars);

 private:
  Expr text_but(const std::vector<std::string_view>& taken, const std::vector<CharRange>& chars,
                bool in_json);
  // The rule of this name, made on first use.
  template <class Make>
  Expr rule(std::string_view name, const Make& make);

  GrammarBuilder& builder_;
  std::set<std::int32_t> made_;  // shared rules that are already defined
};

// A regular expression of JSON Schema's `pattern`, for the inside of a string as written in JSON.
// Without ^ or $ it may match anywhere in the string. Throws Error naming `place` and the
// unsupported syntax: lookaround, backreferences, \b, \p.
GrammarBuilder::Expr pattern_expression(GrammarBuilder& builder, JsonParts& parts,
                                        std::string_view pattern, std::string_view place);

// JSON numbers within bounds. Bounds are strings of decimal digits, so that they are not limited to
// int64 or double. A range takes some hundred places whatever its bounds are.

// (-)whole.fraction; `whole` has no leading zeros (except "0"), `fraction` no trailing zeros.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction = {};

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// The shortest decimal form of a number; for an integer, its digits.
Decimal decimal_of(JsonNode number);
std::string text_of(const Decimal& value);
// Returns < 0, 0 or > 0 if a is less than, equal to or greater than b.
int compare(const Decimal& a, const Decimal& b);

struct NumberRange {
  std::optional<Decimal> least, most;            // nullopt: no bound
  bool above_least = false, below_most = false;  // the bound itself is excluded
};

// The whole numbers of the range, with bounds rounded inwards to whole numbers.
NumberRange whole_range(const NumberRange& range);
// Whether the range contains no number.
bool is_empty(const NumberRange& range);

// Whole numbers of at most 20 digits; `range` is a result of whole_range.
GrammarBuilder::Expr integer_in(GrammarBuilder& builder, const NumberRange& range);
// Numbers of at most 20 digits before and after the point, without an exponent.
GrammarBuilder::Expr number_in(GrammarBuilder& builder, const NumberRange& range);

// The digits of an unbounded natural number: at most 20.
GrammarBuilder::Expr natural_number(GrammarBuilder& builder);
GrammarBuilder::Expr digits(GrammarBuilder& builder, std::int64_t least, std::int64_t most);

}  // namespace leq
