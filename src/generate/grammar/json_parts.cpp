#include "generate/grammar/json_parts.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/text.h"
#include "generate/grammar/number_range.h"

namespace leq {
namespace {

constexpr std::int64_t kMostDigitsOfANumber = 20;

std::string hex4(char32_t c) {
  std::string out = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[c >> shift & 15];
  return out;
}

// The JSON escape of a character that must be escaped; empty for all others.
std::string escape_of(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return c < 0x20 ? hex4(c) : std::string();
  }
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

JsonParts::Expr JsonParts::rule(std::string_view name, Expr (JsonParts::*make)()) {
  const std::int32_t id = builder_.rule(name);
  // The rule is registered before it is defined, because a JSON value may contain values.
  if (made_.insert(id).second) builder_.define(id, (this->*make)());
  return builder_.call(id);
}

JsonParts::Expr JsonParts::space() { return rule("json space", &JsonParts::make_space); }
JsonParts::Expr JsonParts::character() {
  return rule("json character", &JsonParts::make_character);
}
JsonParts::Expr JsonParts::string() { return rule("json string", &JsonParts::make_string); }
JsonParts::Expr JsonParts::value() { return rule("json value", &JsonParts::make_value); }
JsonParts::Expr JsonParts::object() { return rule("json object", &JsonParts::make_object); }
JsonParts::Expr JsonParts::array() { return rule("json array", &JsonParts::make_array); }

JsonParts::Expr JsonParts::make_space() {
  GrammarBuilder& b = builder_;
  return b.choice(
      {b.nothing(), b.text(" "),
       b.sequence({b.text("\n"), b.repeat(b.chars({{' ', ' '}, {'\t', '\t'}}), 0, 20)})});
}

// A pair of surrogates encodes one character; an unpaired surrogate encodes none.
JsonParts::Expr JsonParts::make_character() {
  GrammarBuilder& b = builder_;
  const Expr hex = b.chars({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
  const Expr d = b.chars({{'d', 'd'}, {'D', 'D'}});
  const Expr no_d = b.chars({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}});
  const Expr plain_code = b.choice(
      {b.sequence({no_d, hex, hex, hex}), b.sequence({d, b.chars({{'0', '7'}}), hex, hex})});
  const Expr pair = b.sequence({d, b.chars({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hex, hex,
                                b.text("\\u"), d, b.chars({{'c', 'f'}, {'C', 'F'}}), hex, hex});
  const Expr code = b.sequence({b.text("u"), b.choice({plain_code, pair})});
  const Expr named = b.chars({{'"', '"'},
                              {'\\', '\\'},
                              {'/', '/'},
                              {'b', 'b'},
                              {'f', 'f'},
                              {'n', 'n'},
                              {'r', 'r'},
                              {'t', 't'}});
  return b.choice({b.chars(kPlain), b.sequence({b.text("\\"), b.choice({named, code})})});
}

JsonParts::Expr JsonParts::make_string() {
  GrammarBuilder& b = builder_;
  return b.sequence(
      {b.text("\""), b.repeat(character(), 0, GrammarBuilder::kNoLimit), b.text("\"")});
}

JsonParts::Expr JsonParts::make_value() {
  return builder_.choice({object(), array(), string(), number(), boolean(), null()});
}

JsonParts::Expr JsonParts::make_object() {
  GrammarBuilder& b = builder_;
  const Expr member = b.sequence({string(), b.text(":"), space(), value()});
  const Expr more =
      b.repeat(b.sequence({b.text(","), space(), member}), 0, GrammarBuilder::kNoLimit);
  return b.sequence(
      {b.text("{"), space(), b.optional(b.sequence({member, more, space()})), b.text("}")});
}

JsonParts::Expr JsonParts::make_array() {
  GrammarBuilder& b = builder_;
  const Expr more =
      b.repeat(b.sequence({b.text(","), space(), value()}), 0, GrammarBuilder::kNoLimit);
  return b.sequence(
      {b.text("["), space(), b.optional(b.sequence({value(), more, space()})), b.text("]")});
}

JsonParts::Expr JsonParts::integer() { return integer_in(builder_, {}); }

JsonParts::Expr JsonParts::number() {
  GrammarBuilder& b = builder_;
  const Expr fraction = b.sequence({b.text("."), digits(b, 1, kMostDigitsOfANumber)});
  const Expr exponent =
      b.sequence({b.chars({{'e', 'e'}, {'E', 'E'}}), b.optional(b.chars({{'+', '+'}, {'-', '-'}})),
                  digits(b, 1, 2)});
  return b.sequence(
      {b.optional(b.text("-")), natural_number(b), b.optional(fraction), b.optional(exponent)});
}

JsonParts::Expr JsonParts::written(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    const std::string escape = escape_of(length > 1 ? 0xfffd : static_cast<unsigned char>(text[0]));
    out += escape.empty() ? std::string(text.substr(0, length)) : escape;
    text.remove_prefix(length);
  }
  return builder_.text(out);
}

JsonParts::Expr JsonParts::one_of(std::span<const std::string> texts) {
  if (texts.size() == 1) return builder_.text(texts[0]);
  std::vector<GrammarBuilder::ByteState> tree(1);
  std::vector<std::map<std::uint8_t, std::int32_t>> next(1);
  for (const std::string& text : texts) {
    std::int32_t at = 0;
    for (const char c : text) {
      const auto byte = static_cast<std::uint8_t>(c);
      const auto [known, is_new] = next[static_cast<std::size_t>(at)].try_emplace(
          byte, static_cast<std::int32_t>(tree.size()));
      const std::int32_t to = known->second;
      if (is_new) {
        tree[static_cast<std::size_t>(at)].edges.push_back({byte, byte, to});
        tree.emplace_back();
        next.emplace_back();
      }
      at = to;
    }
    tree[static_cast<std::size_t>(at)].ends = true;
  }
  return builder_.machine(std::move(tree));
}

JsonParts::Expr JsonParts::written_chars(std::vector<CharRange> ranges) {
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
JsonParts::Expr JsonParts::string_but(std::vector<std::string_view> taken) {
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
  const Expr plain = b.repeat(b.chars(kPlain), 0, GrammarBuilder::kNoLimit);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    std::vector<CharRange> on;
    std::vector<Expr> ways;
    for (const auto& [c, next] : tree[i].next) {
      on.push_back({c, c});
      if (escape_of(c).empty())
        ways.push_back(b.sequence({b.chars({{c, c}}), b.call(rule_of(next))}));
    }
    ways.push_back(b.sequence({b.chars(common(inverted(on), kPlain)), plain}));
    if (!tree[i].ends) ways.push_back(b.nothing());
    b.define(rule_of(i), b.choice(std::move(ways)));
  }
  return b.sequence({b.text("\""), b.call(rule_of(0)), b.text("\"")});
}

std::string_view format_pattern(std::string_view format) {
  // The pattern matches only existing days of years 1000 to 2999, with 29 February in leap years.
  static const std::string kLeap =
      "(?:[12][0-9](?:0[48]|[2468][048]|[13579][26])|(?:1[26]|2[048])00)";
  static const std::string kDate =
      "(?:[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|["
      "12]"
      "[0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
      kLeap + "-02-29)";
  static const std::string kTime =
      "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):["
      "0-5]"
      "[0-9])";
  static const std::map<std::string, std::string, std::less<>> kPatterns = {
      {"date", "^" + kDate + "$"},
      {"time", "^" + kTime + "$"},
      {"date-time", "^" + kDate + "T" + kTime + "$"},
      {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"}};
  const auto found = kPatterns.find(format);
  return found == kPatterns.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace leq
