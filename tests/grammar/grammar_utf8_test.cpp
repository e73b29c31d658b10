// Character classes of a grammar on multi-byte characters: which bytes may come next and where a
// character ends, compared with all characters of Unicode.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"

namespace leq {
namespace {

constexpr std::uint32_t kLast = 0x10ffff;

// Encodes as defined by RFC 3629.
std::string utf8(std::uint32_t letter) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (letter >> shift & 0x3f)); };
  const auto lead = [&](std::uint32_t mark, int shift) {
    return static_cast<char>(mark | letter >> shift);
  };
  if (letter < 0x80) return {static_cast<char>(letter)};
  if (letter < 0x800) return {lead(0xc0, 6), tail(0)};
  if (letter < 0x10000) return {lead(0xe0, 12), tail(6), tail(0)};
  return {lead(0xf0, 18), tail(12), tail(6), tail(0)};
}

bool is_letter(std::uint32_t code) { return code < 0xd800 || code > 0xdfff; }

struct Class {
  std::string gbnf;  // "[^a-z]"
  bool negated = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges = {};

  bool has(std::uint32_t letter) const {
    const bool listed = std::ranges::any_of(
        ranges, [&](const auto& range) { return letter >= range.first && letter <= range.second; });
    return is_letter(letter) && listed != negated;
  }
};

// The characters of a class in UTF-8, and all their prefixes, including the empty one.
struct Written {
  explicit Written(const Class& of) {
    for (std::uint32_t code = 0; code <= kLast; ++code) {
      if (!of.has(code)) continue;
      const std::string letter = utf8(code);
      for (std::size_t n = 0; n < letter.size(); ++n) beginnings.insert(letter.substr(0, n));
      whole.insert(letter);
    }
  }
  std::set<std::string> whole, beginnings;
};

// After each prefix exactly the correct bytes are allowed, and text may only end after a character.
void expect_class(const Class& of) {
  const Written written(of);
  ASSERT_FALSE(written.whole.empty()) << of.gbnf;
  GrammarAutomaton automaton(Grammar::from_gbnf("root ::= " + of.gbnf, "g"));
  int wrong = 0;
  for (const std::string& begun : written.beginnings) {
    const auto state = automaton.after(automaton.start(), begun);
    ASSERT_NE(state, GrammarAutomaton::kDead);
    ASSERT_FALSE(automaton.may_end(state));
    for (int byte = 0; byte < 256; ++byte) {
      const std::string next(1, static_cast<char>(byte));
      const auto after = automaton.next(state, static_cast<std::uint8_t>(byte));
      const bool leads_on = after != GrammarAutomaton::kDead;
      const bool ends = written.whole.contains(begun + next);
      const bool goes_on = !ends && written.beginnings.contains(begun + next);
      if (leads_on == (ends || goes_on) && (!leads_on || automaton.may_end(after) == ends)) {
        continue;
      }
      if (++wrong < 4) ADD_FAILURE() << of.gbnf << " after '" << begun << "' byte " << byte;
    }
  }
  EXPECT_EQ(wrong, 0) << of.gbnf;
}

TEST(GrammarUtf8, ClassesOfLongLettersAreRead) {
  expect_class({"[а-я]", false, {{0x430, 0x44f}}});
  expect_class({"[а-яё]", false, {{0x430, 0x44f}, {0x451, 0x451}}});
  expect_class({"[😀-😎]", false, {{0x1f600, 0x1f60e}}});
  expect_class({"[a-z一-鿿]", false, {{'a', 'z'}, {0x4e00, 0x9fff}}});
  expect_class({"[\\u0430-\\u044f\\U0001F600]", false, {{0x430, 0x44f}, {0x1f600, 0x1f600}}});
}

TEST(GrammarUtf8, NegatedClassesAreAllOtherLetters) {
  expect_class({"[^x]", true, {{'x', 'x'}}});
  expect_class({"[^а-я]", true, {{0x430, 0x44f}}});
  expect_class({"[^😀-😎\\n]", true, {{0x1f600, 0x1f60e}, {'\n', '\n'}}});
  expect_class({".", true, {}});
}

std::string escaped(std::uint32_t letter) {
  char text[16];
  std::snprintf(text, sizeof text, "\\U%08X", letter);
  return text;
}

// These ranges begin and end near characters at which the encoded length changes, or near gaps.
TEST(GrammarUtf8, RangesCrossTheLengthsOfLetters) {
  Random random(11);
  const std::uint32_t edges[] = {0x20,   0x7f,   0x80,    0x7ff,   0x800,   0xfff,
                                 0x1000, 0xffff, 0x10000, 0x3ffff, 0x40000, kLast};
  const auto near_edge = [&] {
    std::uint32_t code = 0;
    do {
      const std::uint32_t edge = edges[random.bits() % std::size(edges)];
      code = edge + random.bits() % 130 - std::min(edge, 65u);
    } while (code > kLast || !is_letter(code));
    return code;
  };
  for (int round = 0; round < 24; ++round) {
    Class of = {"[", random.bits() % 4 == 0, {}};
    if (of.negated) of.gbnf += "^";
    for (std::uint32_t n = 1 + random.bits() % 3; n > 0; --n) {
      const auto [first, last] = std::minmax({near_edge(), near_edge()});
      of.ranges.push_back({first, last});
      of.gbnf += escaped(first) + "-" + escaped(last);
    }
    of.gbnf += "]";
    if (std::ranges::all_of(edges, [&](std::uint32_t edge) { return !of.has(edge); })) continue;
    expect_class(of);
  }
}

}  // namespace
}  // namespace leq
