// JSON numbers within bounds. Bounds are strings of decimal digits, so that they are not limited to
// int64 or double. A range takes some hundred places whatever its bounds are.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "generate/grammar/builder.h"

namespace leq {

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
