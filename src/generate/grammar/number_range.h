// Numbers within bounds as JSON writes them. Bounds are decimal digits, so that neither int64 nor
// double limits them, and a grammar takes some hundred places whatever they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json_tree.h"
#include "generate/grammar/builder.h"

namespace leq {

// (-)whole.fraction: no zeros in front of `whole` but a single one, none at the end of `fraction`.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction = {};

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// The number's shortest decimal form; an integer's own digits.
Decimal decimal_of(JsonNode number);
std::string text_of(const Decimal& value);
// < 0, 0, > 0
int compare(const Decimal& a, const Decimal& b);

struct NumberRange {
  std::optional<Decimal> least, most;            // nullopt: no bound
  bool above_least = false, below_most = false;  // the bound itself is out
};

// The same range of whole numbers, with bounds that are whole and within it.
NumberRange whole_range(const NumberRange& range);
// Whether no number is in it.
bool is_empty(const NumberRange& range);

// Whole numbers of at most 20 digits; `range` as whole_range gives it.
GrammarBuilder::Expr integer_in(GrammarBuilder& builder, const NumberRange& range);
// Numbers of at most 20 digits before the point and after it, without an exponent.
GrammarBuilder::Expr number_in(GrammarBuilder& builder, const NumberRange& range);

// Digits of a natural number without a bound: at most 20.
GrammarBuilder::Expr natural_number(GrammarBuilder& builder);
GrammarBuilder::Expr digits(GrammarBuilder& builder, std::int64_t least, std::int64_t most);

}  // namespace leq
