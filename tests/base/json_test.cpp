// Tests the limits and errors of the JSON reader.
#include "base/json.h"
#include "base/json_repair.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "errors.h"

namespace leq {
namespace {

using test::error_of;

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
  EXPECT_NE(parse_error_of("[1, 2, x]").find("offset 7 of 9 bytes"), std::string::npos);
}

// The number of values is limited because each value uses memory, even if its text is short.
TEST(ParseJson, LimitsValuesAndBytes) {
  std::string many = "[0";
  for (int i = 0; i < 98; ++i) many += i % 2 == 0 ? ",[]" : ",{}";
  many += "]";
  EXPECT_EQ(error_of([&] { parse_json(many, "c", {.values = 100}); }), "");
  test::expect_error([&] { parse_json(many, "c", {.values = 99}); }, {"more than 99 values"});
  test::expect_error([&] { parse_json(many, "c", {.bytes = 100}); }, {"at most 100"});
  std::string bomb = "[";
  for (int i = 0; i < 3'000'000; ++i) bomb += "[],";
  test::expect_error([&] { parse_json(bomb + "[]]", "c", kHeaderLimits); }, {"2000000 values"});
}

TEST(ParseJson, RefusesANameThatStandsTwice) {
  EXPECT_EQ(parse_error_of(R"({"a": {"b": 1}, "b": [{"a": 1}, {"a": 2}]})"), "");
  for (const char* bad : {R"({"a": 1, "a": 1})", R"({"x": [{"a": 1, "b": 2, "a": 3}]})",
                          R"({"a": {}, "\u0061": 1})"}) {
    EXPECT_EQ(parse_error_of(bad), "config.json: duplicate key \"a\"") << bad;
  }
}

TEST(ParseJson, AZeroByteDoesNotEndTheText) {
  using namespace std::string_literals;
  EXPECT_EQ(parse_error_of("{}\0garbage"s),
            "config.json: invalid JSON at offset 2 of 10 bytes: a byte 0");
  for (const std::string& bad : {"[1\0]"s, "\0"s, "{}\0"s, "\"\0\""s}) {
    EXPECT_NE(parse_error_of(bad), "") << bad.size();
  }
}

TEST(ParseJson, SpeaksItsOwnWords) {
  const std::string message = parse_error_of("{\"a\": 1e999}");
  EXPECT_EQ(message,
            "config.json: invalid JSON at offset 10 of 12 bytes: a number that is too large");
  EXPECT_EQ(parse_error_of("{"), "config.json: invalid JSON at offset 1 of 1 bytes");
  EXPECT_EQ(parse_error_of("[x]"), "config.json: invalid JSON at offset 1 of 3 bytes");
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
  test::expect_error([&] { json_get<int>(json, "absent", "c"); }, {"absent"});
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

// The expected results are those of nlohmann-json for the same text.
TEST(Json, ReadsAndWritesAsNlohmann) {
  for (const char* text : {"null",
                           "true",
                           "-0",
                           "0",
                           "18446744073709551615",
                           "-9223372036854775808",
                           "1.0",
                           "-0.0",
                           "1e300",
                           "0.1",
                           "123456789.125",
                           "18446744073709551616",
                           "\"\\u00e4\\ud83d\\ude00\\n\\\\\"",
                           "[]",
                           "{}",
                           "[[],{},[[]]]",
                           R"([1,-1,2.5,"x",null,[true,{"a":[{}]}]])",
                           R"({"b":1,"a":{"z":[],"y":[{"k":[1,2,[3]]},4]},"":0})",
                           R"({"a":{"x":1},"b":[2],"c":3})",
                           "[{\"a\":1},{\"a\":[{\"b\":2},{\"b\":[3]}]},[4,[5]]]"}) {
    const auto want = nlohmann::json::parse(text);
    const Json json = parse_json(text, "t");
    EXPECT_EQ(json.dump(), want.dump());
    EXPECT_EQ(json.dump(2), want.dump(2));
    EXPECT_EQ(json.dump_any(1), want.dump(1));
    EXPECT_STREQ(json.type_name(), want.type_name());
    EXPECT_EQ(json.size(), want.size());
    EXPECT_EQ(json, parse_json(json.dump(), "again"));
  }
}

TEST(Json, IsMadeOfValuesAsNlohmannIs) {
  const std::vector<float> numbers = {0.1f, -2.0f};
  const std::map<std::string, int> table = {{"x", 1}, {"w", 2}};
  const char* text = "t";
  const auto made = [&]<class J>(J whole) {
    whole = {{"a", 1}, {"b", {1, 2u, 3.0}}, {"c", {{"d", nullptr}}}, {"pair", {"p", 2}}};
    whole["list"] = numbers;
    whole["table"] = table;
    whole["text"] = text;
    whole["letters"] = J::array({J::array({"a", "b"})});
    whole["new"]["deep"] = true;
    whole["grown"].push_back(std::string("one"));
    whole["inf"] = std::numeric_limits<double>::infinity();
    whole.update({{"a", 7}, {"z", J::object()}});
    whole.erase("b");
    return whole.dump();
  };
  EXPECT_EQ(made(Json()), made(nlohmann::json()));
}

TEST(Json, ComparesNumbersByValue) {
  EXPECT_EQ(Json(3), Json(3u));
  EXPECT_EQ(Json(3), Json(3.0));
  EXPECT_EQ(Json(UINT64_MAX), Json(UINT64_MAX));
  EXPECT_FALSE(Json(-1) == Json(UINT64_MAX));
  EXPECT_FALSE(Json(1) == Json(true));
  EXPECT_FALSE(Json("1") == Json(1));
  EXPECT_EQ(Json({1, "a"}), parse_json("[1, \"a\"]", "t"));
}

TEST(Json, RefusesWhatIsNotThere) {
  Json json = {{"list", {1, 2}}, {"text", "t"}};
  const Json& fixed = json;
  EXPECT_EQ(json["list"][1].get<int>(), 2);
  EXPECT_EQ(json.value("text", "?"), "t");
  EXPECT_EQ(json.value("absent", 5), 5);
  EXPECT_EQ(fixed.find("absent"), fixed.end());
  EXPECT_EQ(fixed["list"].find("key"), fixed["list"].end());
  test::expect_error([&] { fixed["absent"]; }, {"\"absent\" is missing"});
  test::expect_error([&] { fixed["list"][2]; }, {"element 2 of an array of 2"});
  test::expect_error([&] { json["text"].get<int>(); }, {"a number, found string"});
  EXPECT_NE(error_of([&] { json["list"]["key"] = 1; }), "");
  EXPECT_NE(error_of([&] { json["text"].push_back(1); }), "");
  EXPECT_NE(error_of([&] { json["list"].items(); }), "");
  EXPECT_NE(error_of([&] { json.begin(); }), "");
  EXPECT_NE(error_of([&] { json["list"].get<bool>(); }), "");
}

// Objects keep the order of insertion beside that of the names.
TEST(Json, KeepsTheOrderOfMembers) {
  const char* text = R"({"b":1,"a":{"z":[],"y":[{"k":[1,-0.5]},1.0]},"":"\u00e9","c":{}})";
  Json json = parse_json(text, "t");
  EXPECT_EQ(JsonNode(json).dump(), nlohmann::ordered_json::parse(text).dump());
  EXPECT_EQ(json.dump(), nlohmann::json::parse(text).dump());
  EXPECT_EQ(json, parse_json(json.dump(), "by name"));
  json["B"] = json["b"];
  json["b"] = nullptr;
  json.erase("a");
  json["a"] = json["A"] = 2;
  EXPECT_EQ(JsonNode(json).dump(), R"({"b":null,"":"é","c":{},"B":1,"A":2,"a":2})");
  EXPECT_EQ(json.dump(), R"({"":"é","A":2,"B":1,"a":2,"b":null,"c":{}})");
  Json grown;
  for (int i = 0; i < 100; ++i) grown[std::to_string(i * 37 % 100)] = i;
  const Json copy = grown;
  grown.erase("0");
  EXPECT_EQ(copy.size(), 100u);
  EXPECT_FALSE(copy == grown);
  for (int i = 1; i < 100; ++i) {
    EXPECT_EQ(grown.members()[static_cast<std::size_t>(i - 1)].second.get<int>(), i);
    EXPECT_EQ(grown[std::to_string(i * 37 % 100)].get<int>(), i);
  }
}

TEST(JsonNode, IsAValueOrNothing) {
  const Json json = parse_json(
      R"({"n": 3.0, "x": 1.5, "huge": 9223372036854775808, "list": [1, "t"], "o": {"k": true}})",
      "t");
  const JsonNode root = json, nothing;
  std::string names;
  for (const JsonNode member : root) names += member.key() + " ";
  EXPECT_EQ(names, "n x huge list o ");
  EXPECT_EQ(root.find("n").whole(), 3);
  EXPECT_EQ(root.find("x").whole(), std::nullopt);
  EXPECT_EQ(root.find("huge").whole(), std::nullopt);
  EXPECT_TRUE(root.find("huge").is_integer());
  EXPECT_EQ(root.find("list").first().whole(), 1);
  EXPECT_EQ(root.find("list").last().text(), "t");
  EXPECT_EQ(root.find("list")[1].key(), "");
  EXPECT_FALSE(root.find("list")[2]);
  EXPECT_FALSE(root.find("list").find("k"));
  EXPECT_TRUE(root.find("o").find("k").boolean());
  EXPECT_EQ(root.find("o").find("k").key(), "k");
  EXPECT_EQ(root.find("n").size(), 0u);
  EXPECT_FALSE(root.find("absent"));
  EXPECT_FALSE(nothing.find("k").first().is_null());
  EXPECT_FALSE(nothing.last());
  EXPECT_EQ(nothing.size(), 0u);
  EXPECT_EQ(nothing.dump(), "");
  EXPECT_STREQ(nothing.type_name(), "absent");
  EXPECT_STREQ(root.find("x").type_name(), "number");
  EXPECT_NE(error_of([&] { nothing.text(); }), "");
  EXPECT_NE(error_of([&] { root.find("n").text(); }), "");
}

TEST(RepairedObject, IsWhatCanBeReadOfATextThatIsNone) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"a":1,"b":[2,{"c":"d)", R"({"a":1,"b":[2,{"c":"d"}]})"},
      {R"({"a":1,"b)", R"({"a":1})"},
      {R"({"a":1,"b":)", R"({"a":1})"},
      {R"({"a":1,"b":tru)", R"({"a":1})"},
      {R"({"a":[1,"x\)", R"({"a":[1]})"},
      {R"({"a":1,"b":"\ud83d","c":2})", R"({"a":1})"},
      {R"({"b":3,"a":{"x":1,"y":0,"x":2},"b":4})", R"({"a":{"y":0,"x":2},"b":4})"},
      {R"({"a":{"x":1,"x":2)", R"({"a":{"x":2}})"},
      {R"({"a":1} and more)", R"({"a":1})"},
      {R"(["a"])", "{}"},
      {"", "{}"},
      {std::string(kMaxJsonDepth, '[').insert(0, R"({"a":)"), "{}"},
  };
  for (const auto& [text, read] : cases) {
    const Json found = repaired_object(text), expected = parse_json(read, "t");
    EXPECT_EQ(JsonNode(found).dump(), JsonNode(expected).dump()) << text;
  }
}

TEST(Json, TextThatIsNoUtf8IsRefusedOrReplaced) {
  const Json json = {{"a", "x\xffy"}};
  EXPECT_NE(error_of([&] { json.dump(); }), "");
  EXPECT_EQ(json.dump_any(), "{\"a\":\"x\uFFFDy\"}");
}

}  // namespace
}  // namespace leq
