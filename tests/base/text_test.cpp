// Tests UTF-8, splitting of text, and human-readable numbers.
#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

namespace leq {
namespace {

TEST(Utf8, EveryCharacterComesBackAndHasTheLengthOfItsRange) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    append_utf8(text, c);
    const std::size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    ASSERT_EQ(text.size(), length);
    ASSERT_EQ(utf8_length(text), length);
    ASSERT_EQ(decode_utf8(text), c);
    ASSERT_EQ(utf8_length(std::string_view(text).substr(0, length - 1)), 0u);
  }
}

TEST(Utf8, RefusesIllFormedSequences) {
  using namespace std::string_view_literals;
  for (const std::string_view bad : {"\x80"sv,
                                     "\xbf"sv,
                                     "\xc0\x80"sv,
                                     "\xc1\xbf"sv,
                                     "\xc3"sv,
                                     "\xc3("sv,
                                     "\xe0\x80\x80"sv,
                                     "\xe0\x9f\xbf"sv,
                                     "\xed\xa0\x80"sv,
                                     "\xed\xbf\xbf"sv,
                                     "\xe2\x82"sv,
                                     "\xe2(\xa1"sv,
                                     "\xf0\x80\x80\x80"sv,
                                     "\xf0\x8f\xbf\xbf"sv,
                                     "\xf4\x90\x80\x80"sv,
                                     "\xf5\x80\x80\x80"sv,
                                     "\xf0\x9f\x98"sv,
                                     "\xff"sv,
                                     "\xfe"sv,
                                     ""sv}) {
    EXPECT_EQ(utf8_length(bad), 0u);
  }
  EXPECT_EQ(first_invalid_utf8("plain \xe2\x82\xac text"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("abc\xff"), 3u);
  EXPECT_EQ(first_invalid_utf8("\xe2\x82\xac\xe2\x82"), 3u);
}

TEST(Split, KeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("a,b,,c", ","), (Parts{"a", "b", "", "c"}));
  EXPECT_EQ(split("", ","), Parts{""});
  EXPECT_EQ(split("a::b", "::"), (Parts{"a", "b"}));
  EXPECT_EQ(split(",", ","), (Parts{"", ""}));
}

TEST(Trim, TakesWhiteSpaceFromBothEnds) {
  EXPECT_EQ(trim(" \t a b \n"), "a b");
  EXPECT_EQ(trim(" \t\n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(ReplaceAll, DoesNotReplaceInWhatItPutIn) {
  EXPECT_EQ(replace_all("aaa", "a", "aa"), "aaaaaa");
  EXPECT_EQ(replace_all("a b c", " ", ""), "abc");
  EXPECT_EQ(replace_all("abc", "", "x"), "abc");
}

TEST(HumanBytes, ThreeDigitsInDecimalUnits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(12'345), "12.3 kB");
  EXPECT_EQ(human_bytes(123'456'789), "123 MB");
  EXPECT_EQ(human_bytes(999'600), "1.00 MB");
  EXPECT_EQ(human_bytes(1'100'000'000), "1.10 GB");
  EXPECT_EQ(human_bytes(5'000'000'000'000), "5.00 TB");
}

TEST(Text, SizesThatAUserGaveComeBackAsTyped) {
  for (const auto& [typed, shown] : std::map<std::string, std::string>{{"50M", "50M (52.4 MB)"},
                                                                       {"24G", "24G (25.8 GB)"},
                                                                       {"1.5GiB", "1.5G (1.61 GB)"},
                                                                       {"64k", "64k (65.5 kB)"},
                                                                       {"1000", "1.00 kB"},
                                                                       {"500000000", "500 MB"},
                                                                       {"1024M", "1G (1.07 GB)"}}) {
    EXPECT_EQ(given_bytes(parse_bytes(typed).value()), shown) << typed;
  }
}

TEST(Fixed, IsIndependentOfTheLocaleAndNamesWhatIsNoNumber) {
  EXPECT_EQ(fixed(1234.5678, 2), "1234.57");
  EXPECT_EQ(fixed(-0.5, 0), "-0");
  EXPECT_EQ(fixed(2.5, 3), "2.500");
  EXPECT_EQ(fixed(std::nan(""), 2), "nan");
  EXPECT_EQ(fixed(-HUGE_VAL, 2), "-inf");
}

TEST(WithCommas, GroupsThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-123456), "-123,456");
  EXPECT_EQ(with_commas(-123), "-123");
  EXPECT_EQ(with_commas(12345678), "12,345,678");
}

TEST(ParseBytes, ReadsSizesAsPeopleTypeThem) {
  EXPECT_EQ(parse_bytes("512"), 512u);
  EXPECT_EQ(parse_bytes("64k"), 64u << 10);
  EXPECT_EQ(parse_bytes("900M"), 900ull << 20);
  EXPECT_EQ(parse_bytes("8G"), 8ull << 30);
  EXPECT_EQ(parse_bytes("8GB"), 8ull << 30);
  EXPECT_EQ(parse_bytes("1.5gib"), 3ull << 29);
  EXPECT_EQ(parse_bytes("2T"), 2ull << 40);
  for (const char* bad : {"", "G", "8 G", "8X", "8Gx", "-1", "1e3", "99999T", "8GiBs", "nan"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(ParseNumbers, AcceptWholeTextsOnly) {
  EXPECT_EQ(parse_int("42"), 42);
  EXPECT_EQ(parse_int("+42"), 42);
  EXPECT_EQ(parse_int("-9223372036854775808"), INT64_MIN);
  for (const char* bad :
       {"", "+", "-", "+-5", "4x", " 4", "4 ", "9223372036854775808", "0x10", "1.0"}) {
    EXPECT_EQ(parse_int(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_double("0.5"), 0.5);
  EXPECT_EQ(parse_double("+1e3"), 1000.0);
  EXPECT_EQ(parse_double("-2"), -2.0);
  for (const char* bad : {"", "+", "+-5", "0,5", "1e", "1e999", "nan", "inf", "-inf", "1 "}) {
    EXPECT_EQ(parse_double(bad), std::nullopt) << bad;
  }
}

TEST(Printable, ShowsControlAndInvalidBytesAndCutsLongTexts) {
  EXPECT_EQ(printable("tab\there\x7f"), "tab\\x09here\\x7f");
  EXPECT_EQ(printable("\xe2\x82\xac \xff"), "\xe2\x82\xac \\xff");
  EXPECT_EQ(printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(printable("a\u009b31m"), "a\\xc2\\x9b31m");  // CSI as one character
  EXPECT_EQ(printable("\u2028\u202e\u2066"), "\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xe2\\x81\\xa6");
  EXPECT_EQ(printable("\u00a0\u00e9\u4e00\U0001f600"), "\u00a0\u00e9\u4e00\U0001f600");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

}  // namespace
}  // namespace leq
