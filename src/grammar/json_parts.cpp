#include "grammar/json_parts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr std::size_t kMaxDigits = 20;

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

  // Numbers from `least` to `most` of at most kMaxDigits digits; nothing if the range is empty.
  Expr naturals(const std::string& least, const std::optional<std::string>& bound) {
    const std::string most =
        bound && bound->size() <= kMaxDigits ? *bound : std::string(kMaxDigits, '9');
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

  // A bound of an absolute value, whose fraction is cut to kMaxDigits.
  struct Bound {
    std::string whole, fraction;
    bool out = false;  // the bound itself is excluded
  };

  // Absolute values from `least` to `most`.
  Expr sizes(const Bound& least, const std::optional<Bound>& most) {
    const Expr any_fraction = b_.optional(b_.sequence({b_.text("."), digits(b_, 1, kMaxDigits)}));
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
        most->whole.size() <= kMaxDigits) {
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
    const auto left = static_cast<std::int64_t>(kMaxDigits - i);
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
  if (bound.fraction.size() <= kMaxDigits) return bound;
  bound.fraction.resize(kMaxDigits);
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
    if (to && to->whole.size() <= kMaxDigits) upper = bound_of(to, to_out, false);
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

namespace {

// The JSON escape of a character that must be escaped; empty for all others.
std::string escape_of(char32_t c) {
  constexpr std::string_view kCodes = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  const auto named = c < 0x80 ? kCodes.find(static_cast<char>(c)) : std::string_view::npos;
  if (named != std::string_view::npos) return {'\\', kNames[named]};
  if (c >= 0x20) return {};
  std::string out = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[c >> shift & 15];
  return out;
}

// Characters that a JSON string may contain unescaped.
const std::vector<CharRange> kPlain = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, kLastCharacter}};

std::vector<CharRange> common(const std::vector<CharRange>& a, const std::vector<CharRange>& b) {
  std::vector<CharRange> both;
  for (const CharRange& x : a) {
    for (const CharRange& y : b) {
      const CharRange part = {std::max(x.first, y.first), std::min(x.last, y.last)};
      if (part.first <= part.last) both.push_back(part);
    }
  }
  return both;
}

}  // namespace

template <class Make>
Expr JsonParts::rule(std::string_view name, const Make& make) {
  const std::int32_t id = builder_.rule(name);
  // The rule is registered before it is defined, because a JSON value may contain values.
  if (made_.insert(id).second) builder_.define(id, make(builder_));
  return builder_.call(id);
}

Expr JsonParts::space() {
  return rule("json space", [](GrammarBuilder& b) {
    const Expr indent = b.repeat(b.chars({{' ', ' '}, {'\t', '\t'}}), 0, 20);
    return b.choice({b.nothing(), b.text(" "), b.sequence({b.text("\n"), indent})});
  });
}

// A pair of surrogates encodes one character; an unpaired surrogate encodes none.
Expr JsonParts::character() {
  return rule("json character", [](GrammarBuilder& b) {
    const Expr hex = b.chars({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
    const Expr d = b.chars({{'d', 'd'}, {'D', 'D'}});
    const Expr no_d = b.chars({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}});
    const Expr plain_code = b.choice(
        {b.sequence({no_d, hex, hex, hex}), b.sequence({d, b.chars({{'0', '7'}}), hex, hex})});
    const Expr pair = b.sequence({d, b.chars({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hex, hex,
                                  b.text("\\u"), d, b.chars({{'c', 'f'}, {'C', 'F'}}), hex, hex});
    const Expr code = b.sequence({b.text("u"), b.choice({plain_code, pair})});
    std::vector<CharRange> named;
    for (const char c : std::string_view("\"\\/bfnrt")) {
      named.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
    }
    return b.choice(
        {b.chars(kPlain), b.sequence({b.text("\\"), b.choice({b.chars(named), code})})});
  });
}

Expr JsonParts::string() {
  return rule("json string", [&](GrammarBuilder& b) {
    const Expr inside = b.repeat(character(), 0, GrammarBuilder::kNoLimit);
    return b.sequence({b.text("\""), inside, b.text("\"")});
  });
}

Expr JsonParts::value() {
  return rule("json value", [&](GrammarBuilder& b) {
    return b.choice({object(), array(), string(), number(), boolean(), null()});
  });
}

Expr JsonParts::of_type(std::string_view type) {
  if (type == "null") return null();
  if (type == "boolean") return boolean();
  if (type == "string") return string();
  if (type == "integer") return integer();
  if (type == "number") return number();
  if (type == "array") return array();
  return type == "object" ? object() : value();
}

Expr JsonParts::object() {
  return rule("json object", [&](GrammarBuilder& b) {
    const Expr member = b.sequence({string(), b.text(":"), space(), value()});
    const Expr more =
        b.repeat(b.sequence({b.text(","), space(), member}), 0, GrammarBuilder::kNoLimit);
    return b.sequence(
        {b.text("{"), space(), b.optional(b.sequence({member, more, space()})), b.text("}")});
  });
}

Expr JsonParts::array() {
  return rule("json array", [&](GrammarBuilder& b) {
    const Expr more =
        b.repeat(b.sequence({b.text(","), space(), value()}), 0, GrammarBuilder::kNoLimit);
    return b.sequence(
        {b.text("["), space(), b.optional(b.sequence({value(), more, space()})), b.text("]")});
  });
}

Expr JsonParts::list(const std::vector<Expr>& first, std::optional<Expr> rest, std::int64_t least,
                     std::int64_t most) {
  GrammarBuilder& b = builder_;
  // Built from the last element to the first; an element may be the last one once minItems is
  // met.
  const auto prefixes = std::ssize(first);
  const bool unlimited = most == GrammarBuilder::kNoLimit;
  const std::int64_t fixed = unlimited ? prefixes : std::min(prefixes, most);
  Expr tail = b.nothing();
  if (rest && (unlimited || most > prefixes)) {
    const Expr next = b.sequence({b.text(","), space(), *rest});
    const std::int64_t need = std::max<std::int64_t>(least - prefixes, 0);
    const std::int64_t most_left = unlimited ? most : most - prefixes;
    if (prefixes == 0) {
      tail = b.sequence({*rest, b.repeat(next, std::max<std::int64_t>(need - 1, 0),
                                         unlimited ? most_left : most_left - 1)});
      if (need == 0) tail = b.optional(tail);
    } else {
      tail = b.repeat(next, need, most_left);
    }
  }
  // Each element is a rule of its own, because a long list would nest too deeply as an
  // expression.
  for (std::int64_t at = fixed; at-- > 0;) {
    std::vector<Expr> parts;
    if (at > 0) parts = {b.text(","), space()};
    parts.push_back(first[static_cast<std::size_t>(at)]);
    parts.push_back(tail);
    const std::int32_t rule = b.rule("items " + std::to_string(b.rules()));
    const Expr whole = b.sequence(std::move(parts));
    b.define(rule, at < least ? whole : b.optional(whole));
    tail = b.call(rule);
  }
  return b.sequence({b.text("["), space(), tail, space(), b.text("]")});
}

Expr JsonParts::integer() { return integer_in(builder_, {}); }

Expr JsonParts::number() {
  GrammarBuilder& b = builder_;
  const Expr fraction = b.sequence({b.text("."), digits(b, 1, kMaxDigits)});
  const Expr exponent =
      b.sequence({b.chars({{'e', 'e'}, {'E', 'E'}}), b.optional(b.chars({{'+', '+'}, {'-', '-'}})),
                  digits(b, 1, 2)});
  return b.sequence(
      {b.optional(b.text("-")), natural_number(b), b.optional(fraction), b.optional(exponent)});
}

Expr JsonParts::written(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    const std::string escape = escape_of(length > 1 ? 0xfffd : static_cast<unsigned char>(text[0]));
    out += escape.empty() ? std::string(text.substr(0, length)) : escape;
    text.remove_prefix(length);
  }
  return builder_.text(out);
}

Expr JsonParts::one_of(std::span<const std::string> texts) {
  if (texts.size() == 1) return builder_.text(texts[0]);
  std::vector<GrammarBuilder::Word> words;
  for (const std::string& text : texts) words.push_back({text});
  return builder_.words(std::move(words));
}

Expr JsonParts::written_chars(std::vector<CharRange> ranges) {
  std::vector<Expr> ways = {builder_.chars(common(ranges, kPlain))};
  for (char32_t c = 0; c < 0x60; ++c) {
    const bool wanted = std::ranges::any_of(
        ranges, [&](const CharRange& r) { return c >= r.first && c <= r.last; });
    if (wanted && !escape_of(c).empty()) ways.push_back(builder_.text(escape_of(c)));
  }
  return builder_.choice(std::move(ways));
}

// Follows the prefix tree of the taken names: once a string has left the tree, it may be anything;
// within the tree it may end at any node where no name ends.
Expr JsonParts::string_but(std::vector<std::string_view> taken) {
  return builder_.sequence(
      {builder_.text("\""), text_but(taken, kPlain, true), builder_.text("\"")});
}

Expr JsonParts::name_but(const std::vector<std::string_view>& taken,
                         const std::vector<CharRange>& chars) {
  return text_but(taken, chars, false);
}

Expr JsonParts::text_but(const std::vector<std::string_view>& taken,
                         const std::vector<CharRange>& chars, bool in_json) {
  struct Branch {
    std::map<char32_t, std::size_t> next;
    bool ends = false;
    std::size_t above = 0;
    char32_t by = 0;
  };
  std::vector<Branch> tree(1);
  for (std::string_view name : taken) {
    std::size_t at = 0;
    while (!name.empty()) {
      const std::size_t length = std::max<std::size_t>(utf8_length(name), 1);
      const char32_t c = utf8_length(name) > 0 ? decode_utf8(name) : 0xfffd;
      name.remove_prefix(length);
      const auto known = tree[at].next.find(c);
      if (known != tree[at].next.end()) {
        at = known->second;
        continue;
      }
      tree[at].next.emplace(c, tree.size());
      tree.push_back({.above = at, .by = c});
      at = tree.size() - 1;
    }
    tree[at].ends = true;
  }
  GrammarBuilder& b = builder_;
  const std::string prefix = "json key " + std::to_string(builder_.rules()) + " ";
  const auto rule_of = [&](std::size_t i) { return b.rule(prefix + std::to_string(i)); };
  const Expr rest = b.repeat(in_json ? character() : b.chars(chars), 0, GrammarBuilder::kNoLimit);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    std::vector<CharRange> on;
    std::vector<Expr> ways;
    for (const auto& [c, next] : tree[i].next) {
      on.push_back({c, c});
      if (!in_json || escape_of(c).empty())
        ways.push_back(b.sequence({b.chars({{c, c}}), b.call(rule_of(next))}));
    }
    ways.push_back(b.sequence({b.chars(common(inverted(on), chars)), rest}));
    if (!tree[i].ends && (in_json || i > 0)) ways.push_back(b.nothing());
    b.define(rule_of(i), b.choice(std::move(ways)));
  }
  return b.call(rule_of(0));
}

// The reader of JSON Schema's `pattern`: the part of ECMA-262 syntax that describes regular
// languages.

namespace {

using Chars = std::vector<CharRange>;

constexpr int kMaxPatternDepth = 60;
constexpr std::int64_t kMaxPatternTimes = 2000;

const Chars kDigits = {{'0', '9'}};
const Chars kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// kSpace: white space in both ECMA-262 and Python; kNoSpace: white space in neither.
const Chars kSpace = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},
                      {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                      {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
const Chars kNoSpace = inverted({{'\t', '\r'},
                                 {0x1c, ' '},
                                 {0x85, 0x85},
                                 {0xa0, 0xa0},
                                 {0x1680, 0x1680},
                                 {0x2000, 0x200a},
                                 {0x2028, 0x2029},
                                 {0x202f, 0x202f},
                                 {0x205f, 0x205f},
                                 {0x3000, 0x3000},
                                 {0xfeff, 0xfeff}});

const Chars kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class PatternReader {
 public:
  PatternReader(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern,
                std::string_view place)
      : b_(builder), parts_(parts), text_(pattern), place_(place) {}

  Expr read() {
    const Expr all = alternatives();
    if (!rest().empty()) wrong("a bracket too many");
    return all;
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }
  bool skip(std::string_view word) {
    const bool found = rest().starts_with(word);
    if (found) at_ += word.size();
    return found;
  }
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(place_, ": pattern '", printable(text_), "', offset ", at_, ": ", parts...);
  }

  Expr anything() { return b_.repeat(parts_.character(), 0, GrammarBuilder::kNoLimit); }

  // Anchors are allowed only at the ends of the outermost alternatives.
  Expr alternatives() {
    if (++depth_ > kMaxPatternDepth) wrong("brackets nested deeper than ", kMaxPatternDepth);
    std::vector<Expr> ways;
    do {
      std::vector<Expr> parts;
      const bool outer = depth_ == 1;
      if (outer && !skip("^")) parts.push_back(anything());
      bool ended = false;
      while (!ended && !rest().empty() && rest()[0] != '|' && rest()[0] != ')') {
        ended = outer && skip("$");
        if (!ended) parts.push_back(repeated(item()));
      }
      if (ended && !rest().empty() && rest()[0] != '|') wrong("$ in the middle is not supported");
      if (outer && !ended) parts.push_back(anything());
      ways.push_back(b_.sequence(std::move(parts)));
    } while (skip("|"));
    --depth_;
    return ways.size() == 1 ? ways[0] : b_.choice(std::move(ways));
  }

  Expr item() {
    if (skip("(")) {
      if (rest().starts_with("?") && !skip("?:"))
        wrong("only (?: of the groups with ? is supported");
      const Expr inner = alternatives();
      if (!skip(")")) wrong("expected )");
      return inner;
    }
    if (skip("[")) return parts_.written_chars(bracket());
    if (skip(".")) return parts_.written_chars(inverted(kLineEnds));
    constexpr std::string_view kTaken = "^$*+?{";
    if (kTaken.find(rest()[0]) != std::string_view::npos) {
      wrong("'", rest().substr(0, 1), "' is not supported here");
    }
    return parts_.written_chars(one());
  }

  Expr repeated(Expr part) {
    std::int64_t least = 1, most = 1;
    if (skip("*")) {
      least = 0, most = GrammarBuilder::kNoLimit;
    } else if (skip("+")) {
      most = GrammarBuilder::kNoLimit;
    } else if (skip("?")) {
      least = 0;
    } else if (skip("{")) {
      least = most = number();
      if (skip(",")) most = rest().starts_with('}') ? GrammarBuilder::kNoLimit : number();
      if (!skip("}")) wrong("expected }");
      if (most != GrammarBuilder::kNoLimit && most < least)
        wrong("at most fewer times than at least");
    } else {
      return part;
    }
    skip("?");  // a lazy quantifier matches the same texts
    return b_.repeat(part, least, most);
  }

  std::int64_t number() {
    std::int64_t value = -1;
    const auto digits = rest();
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (read.ec != std::errc() || value < 0 || value > kMaxPatternTimes) {
      wrong("expected a number of times, at most ", kMaxPatternTimes);
    }
    at_ += static_cast<std::size_t>(read.ptr - digits.data());
    return value;
  }

  Chars bracket() {
    const bool negated = skip("^");
    Chars ranges;
    while (!skip("]")) {
      if (rest().empty()) wrong("expected ]");
      const Chars first = one();
      if (first.size() == 1 && first[0].first == first[0].last && rest().starts_with('-') &&
          !rest().starts_with("-]")) {
        ++at_;
        if (rest().empty()) wrong("expected ]");
        const Chars last = one();
        if (last.size() != 1 || last[0].first != last[0].last || last[0].first < first[0].first) {
          wrong("a range of characters that is none");
        }
        ranges.push_back({first[0].first, last[0].first});
        continue;
      }
      ranges.insert(ranges.end(), first.begin(), first.end());
    }
    return negated ? inverted(std::move(ranges)) : ranges;
  }

  // One character, or the class of characters of an escape such as \d.
  Chars one() {
    if (!skip("\\")) {
      const std::size_t length = utf8_length(rest());
      if (length == 0) wrong("expected UTF-8");
      const char32_t c = decode_utf8(rest());
      at_ += length;
      return {{c, c}};
    }
    if (rest().empty()) wrong("expected what \\ comes before");
    const char c = rest()[0];
    ++at_;
    constexpr std::string_view kNames = "nrtfv0", kCodes("\n\r\t\f\v\0", 6);
    if (const auto named = kNames.find(c); named != std::string_view::npos) {
      const auto code = static_cast<char32_t>(kCodes[named]);
      return {{code, code}};
    }
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return inverted(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return inverted(kWord);
      case 's':
        return kSpace;
      case 'S':
        return kNoSpace;
      case 'x':
        return code(2);
      case 'u':
        return code(4);
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9');
    if (letter || static_cast<unsigned char>(c) >= 0x80) {
      --at_;
      wrong("\\", printable(rest().substr(0, 1)), " is not supported");
    }
    return {{static_cast<char32_t>(c), static_cast<char32_t>(c)}};
  }

  Chars code(std::size_t digits) {
    const auto text = rest().substr(0, digits);
    std::uint32_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.size() < digits || read.ptr != text.data() + digits ||
        (value >= 0xd800 && value <= 0xdfff)) {
      wrong("expected ", digits, " hexadecimal digits of a character");
    }
    at_ += digits;
    return {{value, value}};
  }

  GrammarBuilder& b_;
  JsonParts& parts_;
  std::string_view text_, place_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Expr pattern_expression(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern,
                        std::string_view place) {
  return PatternReader(builder, parts, pattern, place).read();
}

}  // namespace leq
