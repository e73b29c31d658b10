// Stop strings in text that is split into pieces in every possible way.
#include "sampling/stop.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/random.h"

namespace leq {
namespace {

using Strings = std::vector<std::string>;

struct Expected {
  std::string text;
  std::string found;
};

// Searches the whole text for the stop string that ends first; of several, the longest.
Expected reference(const std::string& text, const Strings& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::string> best;
    for (const auto& stop : stops) {
      if (stop.empty() || stop.size() > end) continue;
      if (text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (!best || stop.size() > best->size()) best = stop;
    }
    if (best) return {text.substr(0, end - best->size()), *best};
  }
  return {text, ""};
}

Expected streamed(const Strings& pieces, const Strings& stops) {
  StopStringFinder finder(stops);
  std::string text;
  for (const auto& piece : pieces) text += finder.push(piece);
  text += finder.finish();
  return {text, std::string(finder.found_string())};
}

void expect_same(const Expected& found, const Expected& expected, const std::string& what) {
  EXPECT_EQ(found.text, expected.text) << what;
  EXPECT_EQ(found.found, expected.found) << what;
}

TEST(StopStringFinder, FindsTheSameHoweverTheTextIsCut) {
  const Strings stops = {"</s>", "User:", "\n\n\n", "er", "", "\xe2\x96\x81"};
  for (const std::string text :
       {"Hello.</s> more", "a Use of Us, Users", "x\n\n y\n\n\nz", "</</s</s>", "nothing here </",
        "ends with \xe2\x96", "\xe2\xe2\x96\x81", ""}) {
    const Expected expected = reference(text, stops);
    for (std::size_t a = 0; a <= text.size(); ++a) {
      for (std::size_t b = a; b <= text.size(); ++b) {
        expect_same(streamed({text.substr(0, a), text.substr(a, b - a), text.substr(b)}, stops),
                    expected, text);
      }
    }
  }
}

TEST(StopStringFinder, EqualsTheReferenceOnRandomTextsOfTwoLetters) {
  Random random(5);
  const auto word = [&](std::uint32_t longest) {
    std::string text;
    for (std::uint32_t n = random.below(longest + 1); n > 0; --n) text += "ab"[random.below(2)];
    return text;
  };
  for (int trial = 0; trial < 3000; ++trial) {
    const Strings stops = {word(6), word(6), word(6)};
    Strings pieces(5);
    std::string text;
    for (auto& piece : pieces) text += piece = word(6);
    expect_same(streamed(pieces, stops), reference(text, stops), text);
  }
}

TEST(StopStringFinder, HoldsBackNoMoreThanMayBecomeAStopString) {
  StopStringFinder finder({"<end>"});
  EXPECT_EQ(finder.push("abc<"), "abc");
  EXPECT_EQ(finder.push("en"), "");
  EXPECT_EQ(finder.push("x"), "<enx");
  EXPECT_EQ(finder.push("y<end"), "y");
  EXPECT_FALSE(finder.found());
  EXPECT_EQ(finder.push("> after"), "");
  EXPECT_TRUE(finder.found());
  EXPECT_EQ(finder.push("more"), "");
  EXPECT_EQ(finder.finish(), "");
}

TEST(StopRules, KnowsEveryEndToken) {
  StopRules rules;
  rules.end_tokens = {2, 7};
  EXPECT_TRUE(rules.is_end_token(2));
  EXPECT_TRUE(rules.is_end_token(7));
  EXPECT_FALSE(rules.is_end_token(3));
}

}  // namespace
}  // namespace leq
