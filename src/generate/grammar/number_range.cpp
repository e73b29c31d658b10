#include "generate/grammar/number_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr std::size_t kMostDigits = 20;

// Compares lengths, then digits; neither number has leading zeros.
int compare_naturals(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

std::string plus_one(std::string digits) {
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '9') {
      ++digits[i];
      return digits;
    }
    digits[i] = '0';
  }
  return "1" + digits;
}

// `digits` must not be "0".
std::string minus_one(std::string digits) {
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '0') {
      --digits[i];
      break;
    }
    digits[i] = '9';
  }
  return digits.size() > 1 && digits[0] == '0' ? digits.substr(1) : digits;
}

// The next larger (or smaller) whole number.
Decimal next_whole(const Decimal& value, bool upwards) {
  if (value.negative == upwards) {  // towards 0
    if (!value.fraction.empty()) return {value.whole != "0" && value.negative, value.whole};
    if (value.whole == "0") return {!upwards, "1"};
    const std::string digits = minus_one(value.whole);
    return {value.negative && digits != "0", digits};
  }
  if (value.is_zero()) return {!upwards, "1"};
  return {value.negative, plus_one(value.whole)};
}

bool all(std::string_view digits, char digit) {
  return digits.find_first_not_of(digit) == std::string_view::npos;
}

class Ranges {
 public:
  explicit Ranges(GrammarBuilder& builder) : b_(builder) {}

  Expr digit(char first, char last) {
    return b_.chars({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
  }

  // Numbers with as many digits as both bounds have. After a digit that is strictly between the
  // bounds, the other digits are free, so that each bound adds only a chain of choices.
  Expr same_length(std::string_view least, std::string_view most) {
    const auto size = static_cast<std::int64_t>(least.size());
    if (all(least, '0') && all(most, '9')) return digits(b_, size, size);
    const std::string_view low = least.substr(1), high = most.substr(1);
    if (least[0] == most[0]) return b_.sequence({b_.text(least.substr(0, 1)), tail(low, high)});
    const std::string nines(low.size(), '9'), zeros(low.size(), '0');
    char first = least[0], last = most[0];
    std::vector<Expr> ways;
    if (!all(low, '0')) {
      ways.push_back(b_.sequence({b_.text(least.substr(0, 1)), tail(low, nines)}));
      ++first;
    }
    if (!all(high, '9')) {
      ways.push_back(b_.sequence({b_.text(most.substr(0, 1)), tail(zeros, high)}));
      --last;
    }
    if (first <= last) {
      ways.push_back(b_.sequence({digit(first, last), digits(b_, size - 1, size - 1)}));
    }
    return b_.choice(std::move(ways));
  }

  // Numbers from `least` to `most` of at most kMostDigits digits; nothing if the range is empty.
  Expr naturals(const std::string& least, const std::optional<std::string>& bound) {
    const std::string most =
        bound && bound->size() <= kMostDigits ? *bound : std::string(kMostDigits, '9');
    if (compare_naturals(least, most) > 0) return b_.choice({});
    if (least.size() == most.size()) return same_length(least, most);
    std::vector<Expr> ways = {same_length(least, std::string(least.size(), '9'))};
    const std::size_t longest = all(most, '9') ? most.size() : most.size() - 1;
    if (longest > least.size()) {
      ways.push_back(
          b_.sequence({digit('1', '9'), digits(b_, static_cast<std::int64_t>(least.size()),
                                               static_cast<std::int64_t>(longest) - 1)}));
    }
    if (longest < most.size()) {
      ways.push_back(same_length("1" + std::string(most.size() - 1, '0'), most));
    }
    return b_.choice(std::move(ways));
  }

  // A bound of an absolute value, whose fraction is cut to kMostDigits.
  struct Bound {
    std::string whole, fraction;
    bool out = false;  // the bound itself is excluded
  };

  // Absolute values from `least` to `most`.
  Expr sizes(const Bound& least, const std::optional<Bound>& most) {
    const Expr any_fraction = b_.optional(b_.sequence({b_.text("."), digits(b_, 1, kMostDigits)}));
    std::vector<Expr> ways;
    if (most && least.whole == most->whole) {
      return b_.sequence({b_.text(least.whole), fraction(least, *most, 0, true, true)});
    }
    ways.push_back(b_.sequence({b_.text(least.whole), fraction(least, {}, 0, true, false)}));
    std::optional<std::string> last;
    if (most && most->whole != "0") last = minus_one(most->whole);
    if (!most || last) {
      ways.push_back(b_.sequence({naturals(plus_one(least.whole), last), any_fraction}));
    }
    if (most && compare_naturals(least.whole, most->whole) < 0 &&
        most->whole.size() <= kMostDigits) {
      ways.push_back(b_.sequence({b_.text(most->whole), fraction({}, *most, 0, false, true)}));
    }
    return b_.choice(std::move(ways));
  }

 private:
  Expr tail(std::string_view least, std::string_view most) {
    return least.empty() ? b_.nothing() : same_length(least, most);
  }

  // The text after a whole number and `i` digits of its fraction. `low` (`high`): the digits so far
  // equal those of `least` (`most`), so this bound still restricts the following digits.
  Expr fraction(const Bound& least, const Bound& most, std::size_t i, bool low, bool high) {
    const auto rest_is_zero = [&](const Bound& bound) { return i >= bound.fraction.size(); };
    const auto digit_of = [&](const Bound& bound) {
      return rest_is_zero(bound) ? '0' : bound.fraction[i];
    };
    // An inclusive lower bound whose digits are used up restricts no further digit.
    if (low && rest_is_zero(least) && !least.out) low = false;
    const bool may_end = (!low || (rest_is_zero(least) && !least.out)) &&
                         (!high || !rest_is_zero(most) || !most.out);
    std::vector<Expr> ways;
    if (may_end) ways.push_back(b_.nothing());
    const auto left = static_cast<std::int64_t>(kMostDigits - i);
    const auto add = [&](Expr first, bool next_low, bool next_high) {
      const bool free = !next_low && !next_high;
      const Expr next =
          free ? digits(b_, 0, left - 1) : fraction(least, most, i + 1, next_low, next_high);
      ways.push_back(i > 0 ? b_.sequence({first, next}) : b_.sequence({b_.text("."), first, next}));
    };
    // At the end of an exclusive upper bound's digits, no further number is below the bound.
    if (high && rest_is_zero(most) && most.out) return b_.choice(std::move(ways));
    if (left > 0) {
      char first = low ? digit_of(least) : '0', last = high ? digit_of(most) : '9';
      if (low && high && first == last) {
        add(digit(first, last), true, true);
        first = static_cast<char>(last + 1);
      } else {
        if (low && first <= last) {
          add(digit(first, first), true, false);
          ++first;
        }
        if (high && first <= last) {
          add(digit(last, last), false, true);
          --last;
        }
      }
      if (first <= last) add(digit(first, last), false, false);
    }
    return b_.choice(std::move(ways));
  }

  GrammarBuilder& b_;
};

// Cuts a bound to the digits that are written; the removed digits make a lower bound exclusive.
Ranges::Bound bound_of(const std::optional<Decimal>& value, bool out, bool is_least) {
  if (!value) return {"0"};
  Ranges::Bound bound = {value->whole, value->fraction, out};
  if (bound.fraction.size() <= kMostDigits) return bound;
  bound.fraction.resize(kMostDigits);
  while (bound.fraction.ends_with('0')) bound.fraction.pop_back();
  bound.out = is_least;
  return bound;
}

}  // namespace

Decimal decimal_of(JsonNode number) {
  Decimal value;
  std::string text = number.is_integer() ? number.dump() : std::string();
  if (text.empty()) {
    std::string buffer(512, '\0');
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number.number(),
                                   std::chars_format::fixed);
    text.assign(buffer.data(), end.ptr);
  }
  value.negative = text.starts_with('-');
  if (value.negative) text.erase(0, 1);
  const std::size_t point = std::min(text.find('.'), text.size());
  value.whole = text.substr(0, point);
  if (point < text.size()) value.fraction = text.substr(point + 1);
  while (value.fraction.ends_with('0')) value.fraction.pop_back();
  value.negative = value.negative && !value.is_zero();
  return value;
}

std::string text_of(const Decimal& value) {
  return (value.negative ? "-" : "") + value.whole +
         (value.fraction.empty() ? "" : "." + value.fraction);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int whole = compare_naturals(a.whole, b.whole);
  const int size = whole != 0 ? whole : a.fraction.compare(b.fraction);
  return a.negative ? -size : size;
}

NumberRange whole_range(const NumberRange& range) {
  NumberRange whole = {range.least, range.most};
  if (range.least && (range.above_least || !range.least->fraction.empty())) {
    whole.least = next_whole(*range.least, true);
  }
  if (range.most && (range.below_most || !range.most->fraction.empty())) {
    whole.most = next_whole(*range.most, false);
  }
  return whole;
}

bool is_empty(const NumberRange& range) {
  if (!range.least || !range.most) return false;
  const int order = compare(*range.least, *range.most);
  return order > 0 || (order == 0 && (range.above_least || range.below_most));
}

Expr digits(GrammarBuilder& builder, std::int64_t least, std::int64_t most) {
  return builder.repeat(builder.chars({{'0', '9'}}), least, most);
}

Expr natural_number(GrammarBuilder& builder) { return Ranges(builder).naturals("0", std::nullopt); }

Expr integer_in(GrammarBuilder& builder, const NumberRange& range) {
  Ranges ranges(builder);
  const auto size = [](const Decimal& value) { return std::optional(value.whole); };
  const auto& [least, most, above, below] = range;
  std::vector<Expr> ways;
  if (!most || !most->negative) {
    ways.push_back(ranges.naturals(least && !least->negative ? least->whole : "0",
                                   most ? size(*most) : std::nullopt));
  }
  if (!least || least->negative) {
    ways.push_back(builder.sequence(
        {builder.text("-"), ranges.naturals(most && most->negative ? most->whole : "1",
                                            least ? size(*least) : std::nullopt)}));
  }
  return builder.choice(std::move(ways));
}

Expr number_in(GrammarBuilder& builder, const NumberRange& range) {
  Ranges ranges(builder);
  const auto& [least, most, above, below] = range;
  const auto sizes = [&](const std::optional<Decimal>& from, bool from_out,
                         const std::optional<Decimal>& to, bool to_out) {
    std::optional<Ranges::Bound> upper;
    if (to && to->whole.size() <= kMostDigits) upper = bound_of(to, to_out, false);
    return ranges.sizes(bound_of(from, from && from_out, true), upper);
  };
  std::vector<Expr> ways;
  if (!most || !most->negative) {
    const bool bounded = least && !least->negative;
    ways.push_back(sizes(bounded ? least : std::nullopt, above, most, below));
  }
  if (!least || least->negative) {
    const bool bounded = most && (most->negative || (most->is_zero() && below));
    ways.push_back(builder.sequence(
        {builder.text("-"), sizes(bounded ? most : std::nullopt, below, least, above)}));
  }
  return builder.choice(std::move(ways));
}

}  // namespace leq
