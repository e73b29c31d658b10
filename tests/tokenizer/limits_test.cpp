// Tokenizer rules that would expand a letter to gigabytes, or need hours for a page of text, are
// refused with an error that names them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "errors.h"
#include "small_specs.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"

namespace leq::test {
namespace {

using test::error_of;

std::vector<Normalizer> doubling(int steps) {
  return std::vector<Normalizer>(static_cast<std::size_t>(steps),
                                 {Normalizer::Kind::replace, "e", "ee"});
}

std::string normalize_error(const std::vector<Normalizer>& steps, const std::string& text) {
  std::string buffer;
  return error_of([&] {
    normalize(steps, text,
              {.prepend = true, .max_bytes = longest_normalized(text.size()), .source = "t.json"},
              buffer);
  });
}

TEST(NormalizerLimits, GrowthIsBoundedByTheText) {
  EXPECT_EQ(normalize_error(doubling(4), std::string(1'000'000, 'e')), "");
  EXPECT_NE(normalize_error(doubling(5), std::string(1'000'000, 'e')), "");
  EXPECT_EQ(normalize_error(doubling(16), "e"), "");  // 64 KB are allowed
  const std::string message = normalize_error(doubling(30), "e");
  EXPECT_NE(message.find("t.json: normalizer 17 of 30, replace \"e\" by \"ee\""), std::string::npos)
      << message;
  EXPECT_NE(normalize_error({{Normalizer::Kind::replace, "e", std::string(16384, 'x')}},
                            std::string(1000, 'e')),
            "");
  EXPECT_NE(normalize_error({{Normalizer::Kind::prepend, "", std::string(16384, 'x')},
                             {Normalizer::Kind::replace, "x", std::string(100, 'y')}},
                            "e"),
            "");
}

TEST(NormalizerLimits, AFileIsJudgedByItsOwnPatterns) {
  EXPECT_EQ(error_of([] { check_normalizers(doubling(4), "t.json"); }), "");
  test::expect_error([] { check_normalizers(doubling(6), "t.json"); }, {"t.json: normalizer"});
  // The normalizers form a chain over several letters.
  std::vector<Normalizer> chain;
  for (char c = 'a'; c < 'z'; ++c) {
    const std::string next(1, static_cast<char>(c + 1));
    chain.push_back({Normalizer::Kind::replace, std::string(1, c), next + next});
  }
  EXPECT_NE(error_of([&] { check_normalizers(chain, "t.json"); }), "");
  // Real tokenizers also replace a space of one byte by a mark of three bytes.
  EXPECT_EQ(
      error_of([] {
        check_normalizers(
            std::vector<Normalizer>{{Normalizer::Kind::prepend, "", std::string(kSpaceMark)},
                                    {Normalizer::Kind::replace, " ", std::string(kSpaceMark)}},
            "t.json");
      }),
      "");
}

// Stretches between invalid UTF-8 bytes are normalized separately, but share one limit.
TEST(NormalizerLimits, ManyStretchesShareOneBound) {
  TokenizerSpec spec = small_byte_spec();
  spec.normalizers = doubling(15);  // 32 KB for each letter
  const Tokenizer tokenizer(spec);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "e\xff";
  test::expect_error([&] { (void)tokenizer.encode(text, {}); }, {"replace \"e\""});
  EXPECT_EQ(tokenizer.encode("e", {}).size(), 32768u);
}

TEST(PatternLimits, RepeatsAreCountedWrittenOut) {
  const auto error = [](const std::string& pattern) {
    return error_of([&] { pcre2_pattern(pattern, "t.json"); });
  };
  for (const char* good : {"a{1000}", "(a{100}){100}", "\\p{N}{1,3}", "[^\\]}]{3}x{2,}", "a{,b}",
                           "({)", "\\x{ffff}\\x{10ffff}", "(?:'s|'t)?", "(a{3}|b{4}){5}(c{10}){10}",
                           "[a{1000}]{1000}", "\\({10000}"}) {
    EXPECT_EQ(error(good), "") << good;
  }
  for (const char* bad : {"(a{1000}){1000}", "(a{1000}){1000,}", "((a{50}){50}){50}",
                          "(?:(?:a|b{200})c{1}){200,300}", "a{20001}", "([ab]{150}\\d){150}",
                          "(a{65535}){65535}", "(a{60000}b{60000}){9223372036854775807}"}) {
    const std::string message = error(bad);
    EXPECT_NE(message.find("t.json: pattern \""), std::string::npos) << bad;
    EXPECT_NE(message.find("repeats too much"), std::string::npos) << bad;
  }
  EXPECT_EQ(error(std::string(kMaxPatternBytes, 'a')), "");
}

}  // namespace
}  // namespace leq::test
