// Tests splitting of text, with the examples of Hugging Face's documentation.
#include "tokenizer/pretokenize.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/hf_tokenizer.h"
#include "convert/tokenizer_parts.h"
#include "errors.h"

namespace leq::test {
namespace {

using Behavior = PreTokenizer::Behavior;
using Pieces = std::vector<std::string>;

Pieces cut(const std::vector<PreTokenizer>& steps, std::string_view text,
           PreTokenizerChain::Flags flags = {}) {
  const PreTokenizerChain chain(steps, "test");
  PatternMatcher matcher;
  Pieces pieces;
  chain.cut(text, flags, matcher, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

PreTokenizer split_by(std::string pattern, Behavior behavior, bool invert = false) {
  PreTokenizer step;
  step.pattern = std::move(pattern);
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

PreTokenizer metaspace(PrependScheme prepend, bool cut_words) {
  PreTokenizer step;
  step.kind = PreTokenizer::Kind::metaspace;
  step.prepend = prepend;
  step.cut_words = cut_words;
  return step;
}

TEST(PreTokenizer, SplitBehaviors) {
  const std::string text = "The-final--countdown";
  const auto by = [&](Behavior behavior) { return cut({split_by("-", behavior)}, text); };
  EXPECT_EQ(by(Behavior::removed), (Pieces{"The", "final", "countdown"}));
  EXPECT_EQ(by(Behavior::isolated), (Pieces{"The", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(by(Behavior::merged_with_previous), (Pieces{"The-", "final-", "-", "countdown"}));
  EXPECT_EQ(by(Behavior::merged_with_next), (Pieces{"The", "-final", "-", "-countdown"}));
  EXPECT_EQ(by(Behavior::contiguous), (Pieces{"The", "-", "final", "--", "countdown"}));
}

TEST(PreTokenizer, InvertedSplitKeepsTheMatches) {
  EXPECT_EQ(cut({split_by("\\w+|[^\\w\\s]+", Behavior::removed, true)}, "Hey friend!  How?"),
            (Pieces{"Hey", "friend", "!", "How", "?"}));
  EXPECT_EQ(cut({split_by("b", Behavior::merged_with_next, true)}, "aabbb"),
            (Pieces{"aab", "b", "b"}));
}

TEST(PreTokenizer, EmptyMatchesCutWhereTheyStand) {
  EXPECT_EQ(cut({split_by("(?=(\\d{3})+(?!\\d))", Behavior::isolated)}, "a1234567"),
            (Pieces{"a1", "234", "567"}));
  // Also between characters of one and of two bytes, as in tokenizers.
  EXPECT_EQ(cut({split_by("x*", Behavior::isolated)}, "abxxc\u00e9"),
            (Pieces{"a", "b", "xx", "c", "\u00e9"}));
  EXPECT_EQ(cut({split_by("x*", Behavior::removed)}, "abxxc\u00e9"),
            (Pieces{"a", "b", "c", "\u00e9"}));
}

TEST(PreTokenizer, StepsCutThePiecesOfEarlierSteps) {
  EXPECT_EQ(cut({split_by("\\s", Behavior::removed), split_by("\\p{N}", Behavior::isolated)},
                "call 911 now"),
            (Pieces{"call", "9", "1", "1", "now"}));
  EXPECT_EQ(cut({split_by("\\p{N}", Behavior::contiguous)}, "Call 123 please"),
            (Pieces{"Call ", "123", " please"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodes) {
  // U+180E was white space once and still is for PCRE2; U+0085 and U+2003 are white space.
  EXPECT_EQ(cut({split_by("\\s+", Behavior::removed)},
                "a\xe1\xa0\x8e"
                "b\xc2\x85"
                "c\xe2\x80\x83"
                "d"),
            (Pieces{"a\xe1\xa0\x8e"
                    "b",
                    "c", "d"}));
  EXPECT_EQ(cut({split_by("[^\\s]+", Behavior::removed, true)},
                "a\xe1\xa0\x8e"
                "b c"),
            (Pieces{"a\xe1\xa0\x8e"
                    "b",
                    "c"}));
  EXPECT_EQ(cut({split_by("\\S+", Behavior::removed, true)},
                "a\xe1\xa0\x8e"
                "b c"),
            (Pieces{"a\xe1\xa0\x8e"
                    "b",
                    "c"}));
}

TEST(PreTokenizer, MetaspaceMarksSpaces) {
  const std::string mark(kSpaceMark);
  EXPECT_EQ(cut({metaspace(PrependScheme::always, true)}, "Hey friend!"),
            (Pieces{mark + "Hey", mark + "friend!"}));
  EXPECT_EQ(cut({metaspace(PrependScheme::always, false)}, "Hey friend!"),
            (Pieces{mark + "Hey" + mark + "friend!"}));
  EXPECT_EQ(cut({metaspace(PrependScheme::always, true)}, " Hey"), (Pieces{mark + "Hey"}));
  EXPECT_EQ(cut({metaspace(PrependScheme::never, true)}, "Hey  you"),
            (Pieces{"Hey", mark, mark + "you"}));
  PreTokenizerChain::Flags later;
  later.at_text_start = false;
  EXPECT_EQ(cut({metaspace(PrependScheme::first, true)}, "Hey", later), (Pieces{"Hey"}));
  EXPECT_EQ(cut({metaspace(PrependScheme::first, true)}, "Hey"), (Pieces{mark + "Hey"}));
  EXPECT_EQ(cut({metaspace(PrependScheme::always, true)}, "Hey", later), (Pieces{mark + "Hey"}));
  // After an invalid byte, nothing is prepended.
  PreTokenizerChain::Flags inside;
  inside.begins_segment = false;
  EXPECT_EQ(cut({metaspace(PrependScheme::always, true)}, "Hey", inside), (Pieces{"Hey"}));
}

TEST(PreTokenizer, PrefixSpace) {
  PreTokenizer step;
  step.kind = PreTokenizer::Kind::prefix_space;
  EXPECT_EQ(cut({step}, "Hey"), (Pieces{" Hey"}));
  EXPECT_EQ(cut({step}, " Hey"), (Pieces{" Hey"}));
  EXPECT_EQ(cut({step}, ""), Pieces{});
}

TEST(PreTokenizer, WordsBeginAtMarks) {
  const std::string mark(kSpaceMark);
  const auto words = [](const std::string& text) {
    Pieces pieces;
    cut_words(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
    return pieces;
  };
  EXPECT_EQ(words(mark + "a" + mark + mark + "b"), (Pieces{mark + "a", mark + mark + "b"}));
  EXPECT_EQ(words("a" + mark), (Pieces{"a", mark}));
  EXPECT_EQ(words(mark), (Pieces{mark}));
  EXPECT_EQ(words(""), Pieces{});
  EXPECT_EQ(words("ab"), (Pieces{"ab"}));
}

TEST(Pattern, RefusesWhatItWouldReadDifferently) {
  for (const char* pattern : {"[a[bc]]", "[a-z&&[^x]]", "(", "a{2,1}", "\\C", "[\xff]"}) {
    test::expect_error([&] { const Pattern refused(pattern, "tokenizer.json"); },
                       {"tokenizer.json"});
  }
  EXPECT_NO_THROW(Pattern("[\\[\\]&]+|[]a]|[^]b]", "tokenizer.json"));
}

TEST(Pattern, RunawayPatternsEndInAnError) {
  EXPECT_THROW(cut({split_by("(a+)+$", Behavior::isolated)}, std::string(40, 'a') + "b"), Error);
}

TEST(Pattern, QuotedLiteralsMatchThemselves) {
  for (const std::string literal : {".", "a+b", "[x]", "\\d", "#", "-", "\xe2\x96\x81", "(?i)"}) {
    EXPECT_EQ(cut({split_by(quoted_pattern(literal), Behavior::removed)}, "1" + literal + "2"),
              (Pieces{"1", "2"}))
        << literal;
  }
}

// Expected pieces are from oracle/patterns.py: letters with marks, words that are split by case.
// Cases whose name is no pre-tokenizer's have their pattern as name, in Oniguruma's syntax.
TEST(PreTokenizer, WordsOfKnownPatternsAreThoseOfTokenizers) {
  const auto path = std::filesystem::path(LEQ_SOURCE_DIR) / "tests/tokenizer/patterns.json";
  const Json all = parse_json(read_file(path, 1 << 22), "patterns.json");
  std::map<std::string, std::vector<PreTokenizer>> steps = {
      {"tekken", {split_by(std::string(kTekkenPattern), Behavior::isolated)}}};
  for (const char* name : {"qwen35", "gpt-4o", "seed-coder", "deepseek-coder"}) {
    TokenizerSpec spec;
    set_pretokenizer(spec, name);
    steps[name] = spec.pre_tokenizers;
  }
  std::size_t compared = 0;
  for (const auto& [name, cases] : all.items()) {
    if (!steps.contains(name)) {
      steps[name] = {split_by(translated_oniguruma(name, "test"), Behavior::isolated)};
    }
    for (const Json& one : cases) {
      const auto words = one.get<Pieces>();
      std::string text;
      for (const std::string& word : words) text += word;
      EXPECT_EQ(cut(steps.at(name), text), words) << name << ": " << text;
      ++compared;
    }
  }
  EXPECT_GT(compared, 600u);
}

}  // namespace
}  // namespace leq::test
