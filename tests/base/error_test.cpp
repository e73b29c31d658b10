#include "base/error.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <type_traits>

namespace leq {
namespace {

static_assert(std::is_nothrow_copy_constructible_v<Error>, "exceptions copy without throwing");
static_assert(!std::is_constructible_v<MessagePart, std::int8_t>, "letter or number?");
static_assert(!std::is_constructible_v<MessagePart, std::uint8_t>, "letter or number?");

template <class... Parts>
Error error_of(const Parts&... parts) {
  try {
    fail(parts...);
  } catch (const Error& error) {
    return error;
  }
}

template <class... Parts>
std::string text_of(const Parts&... parts) {
  return error_of(parts...).what();
}

template <class T>
std::string streamed(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <class T>
void expect_as_streams(std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  for (const T value : {Limits::min(), Limits::max(), Limits::lowest(), T(0), T(1), T(42)}) {
    EXPECT_EQ(text_of(value), streamed(value));
  }
  for (int i = 0; i < 1000; ++i) {
    const auto value = static_cast<T>(random() >> (random() % 64));
    EXPECT_EQ(text_of(value), streamed(value));
  }
}

TEST(Error, WritesWholeNumbersAsStreamsDo) {
  std::mt19937_64 random(1);
  expect_as_streams<short>(random);
  expect_as_streams<unsigned short>(random);
  expect_as_streams<int>(random);
  expect_as_streams<unsigned>(random);
  expect_as_streams<long>(random);
  expect_as_streams<unsigned long>(random);
  expect_as_streams<long long>(random);
  expect_as_streams<unsigned long long>(random);
  EXPECT_EQ(text_of(true, false), "10");
}

TEST(Error, WritesRealNumbersAsStreamsDo) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value :
       {0.0, -0.0, 1.0, 0.1, 100000.0, 999999.5, 1e6, 1e-4, 9.99999e-5, 1e300, 123456.5, 1234567.0,
        5e-324, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(text_of(value), streamed(value));
  }
  std::mt19937_64 random(2);
  for (int i = 0; i < 10000; ++i) {
    const auto number = std::bit_cast<double>(random());
    EXPECT_EQ(text_of(number), streamed(number));
    const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    EXPECT_EQ(text_of(single), streamed(single));
  }
}

TEST(Error, WritesTextsOfEveryForm) {
  const std::string text = "text";
  const char* pointer = "pointer";
  const char array[] = "array";
  EXPECT_EQ(text_of(text, ' ', pointer, 'e', array, std::string_view("view and more", 4)),
            "text pointerearrayview");
  EXPECT_EQ(text_of(), "");
}

TEST(Error, NamesSettingsByFieldOrAsTheSpellerDoes) {
  const Error error = error_of(Setting{"context"}, " ", 9000, ": expected 1 to 4096; use ",
                               Setting{"key_type"}, " int8");
  EXPECT_STREQ(error.what(), "context 9000: expected 1 to 4096; use key_type int8");
  EXPECT_EQ(error.setting(), "context");
  const auto loud = [](std::string_view name) { return "<" + std::string(name) + ">"; };
  EXPECT_EQ(spelled(error.marked(), loud),
            "<context> 9000: expected 1 to 4096; use <key_type> int8");
  EXPECT_EQ(spelled(error.marked()), error.what());
}

TEST(Error, AnErrorThatQuotesAnotherKeepsItsSettings) {
  const Error inner = error_of(Setting{"device"}, " tpu");
  const Error outer = error_of(inner.kind(), "here: ", inner.marked());
  EXPECT_STREQ(outer.what(), "here: device tpu");
  EXPECT_EQ(outer.setting(), "device");
  EXPECT_EQ(outer.kind(), ErrorKind::bad_setting);
}

TEST(Error, KnowsItsKind) {
  EXPECT_EQ(error_of("file.leq: damaged").kind(), ErrorKind::bad_input);
  EXPECT_EQ(error_of("file.leq: too long; raise ", Setting{"context"}).kind(),
            ErrorKind::bad_input);
  EXPECT_EQ(error_of(Setting{"top_p"}, " is 2").kind(), ErrorKind::bad_setting);
  EXPECT_EQ(error_of(ErrorKind::no_device, Setting{"device"}, " cuda:9").kind(),
            ErrorKind::no_device);
  EXPECT_EQ(error_of(ErrorKind::io, "x: cannot open").kind(), ErrorKind::io);
  EXPECT_STREQ(error_of(ErrorKind::io, "x: cannot open").what(), "x: cannot open");
  EXPECT_EQ(Error("text").kind(), ErrorKind::bad_input);
}

TEST(Error, RequireAndEnsureThrowWhereTheConditionIsFalse) {
  EXPECT_NO_THROW(require(true, "x"));
  EXPECT_NO_THROW(ensure(true, "x"));
  EXPECT_THROW(require(false, "x"), Error);
  try {
    ensure(false, "row ", 7, " of ", 4);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "row 7 of 4");
    EXPECT_EQ(dynamic_cast<const Error&>(error).kind(), ErrorKind::internal);
  }
}

TEST(Error, TextsThatOnlyLookLikeMarksStayAsTheyAre) {
  for (const std::string text : {"\x02",
                                 "a\x02"
                                 "b",
                                 "\x03\x02", "\x02no end", "\x02Big\x03", "\x02two words\x03"}) {
    const Error error(text);
    EXPECT_EQ(error.what(), text);
    EXPECT_EQ(error.setting(), "");
  }
  EXPECT_STREQ(Error("\x02\x02"
                     "act\x03")
                   .what(),
               "\x02"
               "act");
}

TEST(Error, ANulInATextEndsNoMessage) {
  const Error error(std::string("a\0b\0", 4) + Setting{"context"}.marked() + " c");
  EXPECT_STREQ(error.what(), "a\\x00b\\x00context c");
  EXPECT_EQ(spelled(error.marked(), [](std::string_view) { return std::string("-c"); }),
            "a\\x00b\\x00-c c");
}

TEST(Error, BytesThatAreNotUtf8AreEscaped) {
  EXPECT_EQ(text_of("/tmp/\xff\xc3\xa9\xc3: no"), "/tmp/\\xff\xc3\xa9\\xc3: no");
}

TEST(Error, CopiesSayTheSame) {
  const Error first = error_of(ErrorKind::no_memory, Setting{"max_ram"}, " 1 GB");
  Error second("another");
  second = first;
  EXPECT_STREQ(second.what(), "max_ram 1 GB");
  EXPECT_EQ(second.setting(), "max_ram");
  EXPECT_EQ(second.kind(), ErrorKind::no_memory);
}

}  // namespace
}  // namespace leq
