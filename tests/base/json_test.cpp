// Limits and errors of the JSON reader.
#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace leq {
namespace {

template <class Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string parse_error_of(const std::string& text) {
  return error_of([&] { parse_json(text, "config.json"); });
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

TEST(ParseJson, LimitsDepth) {
  EXPECT_EQ(parse_error_of(nested(kMaxJsonDepth)), "");
  EXPECT_NE(parse_error_of(nested(kMaxJsonDepth + 1)).find("deeper than 64"), std::string::npos);
  EXPECT_NE(parse_error_of(std::string(5'000'000, '[')), "");
  EXPECT_NE(parse_error_of(std::string(5'000'000, '{')), "");
  EXPECT_EQ(parse_error_of("\"" + std::string(200, '[') + "\\\"[\""), "");
}

TEST(ParseJson, NamesSourceAndOffset) {
  for (const char* bad : {"", "{", "{\"a\":}", "[1,]", "{} x", "nul", "\"\xff\"", "{'a':1}",
                          "[1e999]", "[NaN]", "\"\\ud800\"", "[1] // comment"}) {
    const std::string message = parse_error_of(bad);
    EXPECT_TRUE(message.starts_with("config.json: ")) << bad;
    EXPECT_EQ(message.find('\n'), std::string::npos) << bad;
  }
  EXPECT_NE(parse_error_of("[1, 2, x]").find("offset 8"), std::string::npos);
}

TEST(JsonGet, ChecksPresenceAndType) {
  const Json json = parse_json(R"({"n": 3, "x": 1.5, "s": "t", "b": true, "z": null})", "c");
  EXPECT_EQ(json_get<int>(json, "n", "c"), 3);
  EXPECT_EQ(json_get<double>(json, "n", "c"), 3.0);
  EXPECT_EQ(json_get<double>(json, "x", "c"), 1.5);
  EXPECT_EQ(json_get<std::string>(json, "s", "c"), "t");
  EXPECT_TRUE(json_get<bool>(json, "b", "c"));
  EXPECT_EQ(json_get_or<int>(json, "z", 7, "c"), 7);
  EXPECT_EQ(json_get_or<int>(json, "absent", 7, "c"), 7);
  EXPECT_NE(error_of([&] { json_get<int>(json, "x", "c"); }), "");
  EXPECT_NE(error_of([&] { json_get<int>(json, "b", "c"); }), "");
  EXPECT_NE(error_of([&] { json_get<bool>(json, "n", "c"); }), "");
  EXPECT_NE(error_of([&] { json_get<double>(json, "s", "c"); }), "");
  EXPECT_NE(error_of([&] { json_get_or<std::string>(json, "n", "", "c"); }), "");
  EXPECT_NE(error_of([&] { json_get<int>(json, "absent", "c"); }).find("absent"),
            std::string::npos);
  EXPECT_NE(error_of([&] { json_get<int>(Json::array(), "n", "c"); }), "");
}

TEST(JsonGet, RefusesNumbersThatDoNotFit) {
  const Json json =
      parse_json(R"({"big": 4294967297, "huge": 18446744073709551615, "minus": -1})", "c");
  EXPECT_EQ(json_get<std::int64_t>(json, "big", "c"), 4294967297);
  EXPECT_NE(error_of([&] { json_get<int>(json, "big", "c"); }), "");
  EXPECT_EQ(json_get<std::uint64_t>(json, "huge", "c"), UINT64_MAX);
  EXPECT_NE(error_of([&] { json_get<std::int64_t>(json, "huge", "c"); }), "");
  EXPECT_EQ(json_get<int>(json, "minus", "c"), -1);
  EXPECT_NE(error_of([&] { json_get<std::uint64_t>(json, "minus", "c"); }), "");
}

}  // namespace
}  // namespace leq
