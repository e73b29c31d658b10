// JSON schemas as pydantic 2 and zod 4 write them: which texts are allowed, which keywords restrict
// nothing, and the notes about keywords that are not enforced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "chat/tool_grammar.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"

namespace leq::schema_test {
namespace {

bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarAutomaton automaton(grammar);
  const auto state = automaton.after(automaton.start(), text);
  return state != GrammarAutomaton::kDead && automaton.may_end(state);
}

struct Bounded {
  std::string schema;
  std::vector<std::string> inside, outside;
};

TEST(SchemaBounds, SixtyFourBitsAreHeldExactlyAndSmall) {
  const std::vector<Bounded> cases = {
      {R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
       {"0", "-1", "9007199254740991", "-9007199254740991", "1000000000000000"},
       {"9007199254740992", "-9007199254740992", "10000000000000000"}},
      {R"({"type":"integer","minimum":0,"maximum":9007199254740991})",
       {"0", "9007199254740990"},
       {"-1", "9007199254740999"}},
      {R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})",
       {"9223372036854775807", "-9223372036854775808"},
       {"9223372036854775808", "-9223372036854775809"}},
      {R"({"type":"integer","exclusiveMaximum":9223372036854775808})",
       {"9223372036854775807", "-99999999999999999999"},
       {"9223372036854775808"}},
      {R"({"type":"integer","minimum":0,"maximum":18446744073709551615})",
       {"18446744073709551615"},
       {"18446744073709551616"}},
      {R"({"type":"integer","minimum":1e300})", {}, {"1", "99999999999999999999"}},
      {R"({"type":"integer","exclusiveMinimum":-1.5,"maximum":2.5})", {"-1", "2"}, {"-2", "3"}},
      {R"({"type":"integer","minimum":5,"exclusiveMinimum":true})", {"6"}, {"5"}}};
  for (const Bounded& one : cases) {
    if (one.inside.empty()) {
      EXPECT_THROW(Grammar::from_json_schema(one.schema, "s"), Error) << one.schema;
      continue;
    }
    const auto grammar = Grammar::from_json_schema(one.schema, "s");
    EXPECT_LT(grammar->places(), 4000u) << one.schema;
    for (const auto& text : one.inside) EXPECT_TRUE(takes(grammar, text)) << one.schema << text;
    for (const auto& text : one.outside) EXPECT_FALSE(takes(grammar, text)) << one.schema << text;
  }
}

// Compares with arithmetic on thousandths.
TEST(SchemaBounds, OfNumbersAreHeldToTheDigit) {
  Random random(11);
  const auto written = [](std::int64_t thousandths) {
    const std::int64_t size = std::abs(thousandths);
    std::string text = (thousandths < 0 ? "-" : "") + std::to_string(size / 1000);
    std::string rest = std::to_string(1000 + size % 1000).substr(1);
    while (rest.ends_with('0')) rest.pop_back();
    return rest.empty() ? text : text + "." + rest;
  };
  for (int turn = 0; turn < 150; ++turn) {
    const std::int64_t a = static_cast<std::int64_t>(random.bits() % 6000) - 3000;
    const std::int64_t b = a + 1 + static_cast<std::int64_t>(random.bits() % 3000);
    const bool above = random.bits() % 2 == 0, below = random.bits() % 2 == 0;
    const std::string schema = R"({"type":"number",")" +
                               std::string(above ? "exclusiveMinimum" : "minimum") +
                               "\":" + written(a) + ",\"" +
                               (below ? "exclusiveMaximum" : "maximum") + "\":" + written(b) + "}";
    std::shared_ptr<const Grammar> grammar;
    ASSERT_NO_THROW(grammar = Grammar::from_json_schema(schema, "s")) << schema;
    GrammarAutomaton automaton(grammar);
    for (std::int64_t value = -4000; value <= 7000; value += 1 + value % 3 + 3) {
      for (const std::int64_t tried : {value, a, b, a + 1, b - 1}) {
        if (tried == 0) continue;  // -0 is 0
        for (const char* zeros : {"", "0"}) {
          std::string text = written(tried);
          if (*zeros != 0) text += text.find('.') == std::string::npos ? ".0" : "0";
          const auto state = automaton.after(automaton.start(), text);
          const bool found = state != GrammarAutomaton::kDead && automaton.may_end(state);
          const bool wanted = (above ? tried > a : tried >= a) && (below ? tried < b : tried <= b);
          ASSERT_EQ(found, wanted) << text << " in " << schema;
        }
      }
    }
  }
}

TEST(SchemaEnums, OfTwentyThousandValuesAreOneTree) {
  Json values = Json::array();
  for (int i = 0; i < 20'000; ++i) values.push_back("value " + std::to_string(i * 7919 % 1000003));
  const auto grammar = Grammar::from_json_schema(Json{{"enum", values}}.dump(), "s");
  GrammarAutomaton automaton(grammar);
  for (const int i : {0, 1, 777, 19'999}) {
    const std::string text = Json(values[i].text()).dump();
    const auto state = automaton.after(automaton.start(), text);
    ASSERT_NE(state, GrammarAutomaton::kDead) << text;
    EXPECT_TRUE(automaton.may_end(state));
  }
  EXPECT_FALSE(takes(grammar, "\"value x\""));
  // A union of literals, as zod writes it.
  Json union_of = Json::array();
  for (int i = 0; i < 5'000; ++i) {
    union_of.push_back({{"type", "string"}, {"const", "v" + std::to_string(i)}});
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto literals =
        Grammar::from_json_schema(Json::object({{keyword, union_of}}).dump(), "s");
    EXPECT_TRUE(takes(literals, "\"v4999\""));
    EXPECT_FALSE(takes(literals, "\"v5000\""));
  }
}

struct Written {
  std::string schema;
  std::vector<std::string> valid, invalid;
  std::string note;  // part of the only note; empty: there is none, and strict accepts it
};

const std::vector<Written>& written_schemas() {
  static const std::vector<Written> kCases = {
      {R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"type":"number"}})",
       {"{}", R"({"a":1})"},
       {R"({"a":"x"})"},
       ""},
      {R"({"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"null"}})",
       {"{}", R"({"a":null, "b":null})"},
       {R"({"c":null})"},
       ""},
      {R"({"type":"object","propertyNames":{"$ref":"#/$defs/K"},"additionalProperties":true,"$defs":{"K":{"pattern":"^[a-c]{2}$"}}})",
       {R"({"ab":1})"},
       {R"({"abc":1})", R"({"x":1})"},
       ""},
      {R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}},"additionalProperties":false})",
       {"{}", R"({"x-a":1})"},
       {R"({"a":1})", R"({"x-a":"b"})"},
       ""},
      {R"({"type":"object","minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1,"b":2,"c":3})"},
       ""},
      {R"({"type":"object","properties":{"a":{}},"required":["a"],"minProperties":1})",
       {R"({"a":1})"},
       {"{}"},
       ""},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}],"discriminator":{"propertyName":"k"},"x-order":3})",
       {R"({"k":"a"})"},
       {R"({"k":"c"})"},
       ""},
      {R"({"type":"array","items":[{"type":"integer"},{"type":"null"}],"additionalItems":{"type":"boolean"},"minItems":2})",
       {"[1,null]", "[1,null,true]"},
       {"[1]", "[null,null]", "[1,null,1]"},
       ""},
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":false})", {"[1,1]"}, {}, ""},
      {R"({"type":"integer","multipleOf":1})", {"3"}, {"1.5"}, ""},
      {R"({"type":"string","format":"date","pattern":"-02-..$","minLength":2})",
       {R"("2025-02-28")", R"("2024-02-29")"},
       {R"("2025-03-28")", R"("2025-02-29")", R"("-02-28")"},
       ""},
      {R"({"type":"string","pattern":"^a*b?$","maxLength":3,"not":{"enum":["aab",4]}})",
       {R"("aaa")", R"("ab")", R"("")"},
       {R"("aab")", R"("aaaa")", R"("c")"},
       ""},
      // A machine of its language has 2^21 states.
      {R"({"type":"string","pattern":"^[ab]*a[ab]{20}$"})",
       {R"("abbbbbbbbbbbbbbbbbbbb")", R"("baaaaaaaaaaaaaaaaaaaaa")"},
       {R"("bbbbbbbbbbbbbbbbbbbbb")", R"("ab")"},
       ""},
      {R"({"type":"string","minLength":2,"minimum":3,"items":{}})", {R"("ab")"}, {R"("a")"}, ""},
      {R"({"type":"string","pattern":"^(?!\\.)a+$","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {"1"},
       "'pattern' is not enforced"},
      {R"({"type":"string","format":"email","pattern":"^(?!\\.)a+$"})",
       {R"("a.b@c-d.org")"},
       {"1", R"("anything")", R"("a..b@c.org")"},
       "'pattern' is not enforced"},
      {R"({"type":"string","format":"iri"})",
       {R"("x")"},
       {"1"},
       "the format 'iri' is not enforced"},
      {R"({"type":"string","format":"password"})", {R"("x")"}, {"1"}, ""},
      {R"({"format":"date"})", {R"("2026-02-03")"}, {"1", R"("x")"}, ""},
      {R"({"type":"integer","format":"int32"})", {"1"}, {"1.5"}, ""},
      {R"({"type":"string","pattern":"a^b"})", {R"("x")"}, {"1"}, "'pattern' is not enforced"},
      {R"({"type":"string","pattern":"^*a$"})", {R"("x")"}, {"1"}, "'pattern' is not enforced"},
      {R"({"type":"string","pattern":"["})", {R"("x")"}, {"1"}, "'pattern' is not enforced"},
      {R"({"type":"string","pattern":"(?:a|b){0,2000}.{0,2000}c"})",
       {R"("x")"},
       {"1"},
       "'pattern' is not enforced"},
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})",
       {"[1,1]"},
       {"[\"a\"]"},
       "'uniqueItems' is not enforced"},
      {R"({"type":"array","items":{"enum":["a","b","c",1,1.0]},"uniqueItems":true,"minItems":1,"maxItems":3})",
       {R"(["a"])", R"(["c", "a"])", R"([1,"b","c"])"},
       {"[]", R"(["a","a"])", "[1,1.0]", R"(["a","b","c",1])", R"(["d"])", R"(["a",])"},
       ""},
      {R"({"type":"number","multipleOf":0.01,"minimum":0})",
       {"0", "0.01", "12.5", "3", "0.99"},
       {"0.015", "-1", "0.", "1e2"},
       ""},
      {R"({"type":"integer","multipleOf":7,"maximum":70,"exclusiveMinimum":-14})",
       {"0", "7", "70", "-7", "63"},
       {"-14", "1", "77", "07"},
       ""},
      {R"({"type":"number","multipleOf":2.5})",
       {"-2.5", "5", "10", "7.5"},
       {"1", "2.25", "3.5"},
       ""},
      {R"({"type":"number","multipleOf":1009})", {"1"}, {"\"x\""}, "'multipleOf' is not enforced"},
      {R"({"type":"object","properties":{"a":{"type":"string","not":{"const":"x"}}},"required":["a"]})",
       {R"({"a":"y"})", R"({"a":""})", R"({"a":"xx"})"},
       {"{}", R"({"a":"x"})"},
       ""},
      {R"({"type":"integer","not":{"const":"x"}})", {"1"}, {"\"x\""}, ""},
      {R"({"type":"integer","not":{"const":3}})", {"3"}, {"\"x\""}, "'not' is not enforced"},
      {R"({"type":"object","properties":{"a":{},"B":{}},"propertyNames":{"pattern":"^[a-z]$"},"additionalProperties":{"type":"null"}})",
       {R"({"a":1,"c":null})", "{}"},
       {R"({"B":1})", R"({"B":null})", R"({"cc":null})", R"({"c":1})"},
       ""},
      {R"({"type":"object","properties":{"A":{}},"required":["A"],"propertyNames":{"pattern":"^[a-z]*$"}})",
       {"{}"},
       {"1"},
       "only the type is enforced"},
      {R"({"$ref":"#/$defs/a%20b%C3%A9~1","$defs":{"a bé/":{"type":"null"}}})",
       {"null"},
       {"1"},
       ""},
      {R"({"oneOf":[{"const":1},{"const":1.0}]})", {"1"}, {"2"}, "'oneOf'"},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"if":{"required":["a"]},"then":{}})",
       {R"({"a":1})"},
       {R"({"a":"x"})"},
       "'if' is not enforced"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"1", "1.5"}, {"\"x\""}, "'oneOf'"},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":1})"},
       {R"({"a":"x"})"},
       "'anyOf' is not enforced"},
      {R"({"allOf":[{"type":"string"},{"pattern":"a"}]})",
       {"\"b\""},
       {},
       "only the type is enforced"},
      {R"({"allOf":[{"enum":["yes","no"]},{"title":"t"},true]})", {R"("no")"}, {"{}", "1"}, ""},
      {R"({"description":"d","allOf":[{"$ref":"#/$defs/C"},{"description":"d"}],"$defs":{"C":{"enum":["red"]}}})",
       {R"("red")"},
       {"{}", R"("blue")"},
       ""},
      {R"({"type":"string","maxLength":1,"allOf":[{"title":"t"}]})", {R"("a")"}, {R"("ab")"}, ""},
      {R"({"allOf":[{"minLength":2},{"maxLength":5}]})",
       {R"("abc")"},
       {"{}", "1"},
       "only the type is enforced"},
      {R"({"allOf":[{"enum":[1,2]},{"$ref":"#/$defs/T"}],"$defs":{"T":{"type":"integer"}}})",
       {"1", "3"},
       {"{}", "1.5"},
       "only the type is enforced"},
      {R"({"allOf":[{"$ref":"https://example.org/other.json"},{"minimum":1}]})",
       {"1.5"},
       {"{}"},
       "only the type is enforced"},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"null"}}},{"required":["a"]},{}]})",
       {R"({"a":null})"},
       {"{}"},
       ""},
      {R"({"properties":{"a":{"allOf":[false,{"type":"object"}]},"b":{}}})",
       {"{}", R"({"b":1})"},
       {R"({"a":{}})"},
       ""},
      {R"({"type":"object","propertyNames":false})", {"{}"}, {R"({"a":1})"}, ""},
      {R"({"propertyNames":{"enum":[1]},"properties":{"a":{}},"additionalProperties":true})",
       {"{}"},
       {R"({"a":1})", R"({"1":1})"},
       ""},
      {R"({"propertyNames":{"minLength":3,"maxLength":2}})", {"{}"}, {R"({"abc":1})"}, ""},
      {R"({"propertyNames":false,"patternProperties":{"a":{},"b":{}}})",
       {"{}"},
       {R"({"a":1})"},
       "'patternProperties' is not enforced"},
      {R"({"anyOf":[{"type":"array","items":false,"minItems":2},{"type":"array","items":{},"minItems":2,"maxItems":1},{"type":"string","minLength":2,"maxLength":1},{"type":"integer","minimum":2,"maximum":1},{"type":"number","minimum":2,"maximum":1},{"required":["a"],"additionalProperties":false},{"minProperties":2,"maxProperties":1},{"allOf":[{"type":"string","enum":[1]}]},{"type":"array","items":{"enum":[1]},"uniqueItems":true,"minItems":2},{"propertyNames":{"enum":["a"]},"minProperties":2},{"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":1}},"required":["a"]},{"type":"null"}]})",
       {"null"},
       {"1", "[]", "{}", R"("a")", R"({"a":"a"})"},
       ""},
      {R"({"$ref":"https://example.org/other.json"})", {"1"}, {}, "only the type is enforced"}};
  return kCases;
}

TEST(LooseSchemas, WhatCannotBeHeldIsSaidAndTheRestIsHeld) {
  for (const Written& one : written_schemas()) {
    SchemaNotes notes;
    const auto grammar = Grammar::from_json_schema(one.schema, "s", &notes);
    for (const auto& text : one.valid) EXPECT_TRUE(takes(grammar, text)) << one.schema << text;
    for (const auto& text : one.invalid) EXPECT_FALSE(takes(grammar, text)) << one.schema << text;
    if (one.note.empty()) {
      EXPECT_EQ(notes, SchemaNotes{}) << one.schema;
      EXPECT_NO_THROW(Grammar::from_json_schema(one.schema, "s")) << one.schema;
    } else {
      ASSERT_FALSE(notes.empty()) << one.schema;
      EXPECT_NE(notes[0].find(one.note), std::string::npos) << notes[0];
      EXPECT_TRUE(notes[0].starts_with("s: #")) << notes[0];
      EXPECT_THROW(Grammar::from_json_schema(one.schema, "s"), Error) << one.schema;
    }
  }
}

TEST(LooseSchemas, AMistakeIsAnErrorAllTheSame) {
  for (const char* schema : {R"({"type":"thing"})", "[]", R"({"type":3})", R"({"enum":1})",
                             R"({"$ref":"#/$defs/none"})", R"({"type":"integer","minimum":"1"})"}) {
    SchemaNotes notes;
    EXPECT_THROW(Grammar::from_json_schema(schema, "s", &notes), Error) << schema;
  }
}

TEST(LooseSchemas, WhatIsNotHeldIsSaidHoweverMuchItIs) {
  Json properties = Json::object();
  for (int i = 0; i < 60; ++i) properties["p" + std::to_string(i)] = {{"contains", 1}};
  SchemaNotes notes;
  (void)Grammar::from_json_schema(Json::object({{"properties", properties}}).dump(), "s", &notes);
  ASSERT_EQ(notes.size(), 21u);
  EXPECT_EQ(notes.back(), "s: more is not enforced");
}

struct Format {
  const char* name;
  std::vector<const char*> valid, invalid;
};

TEST(SchemaFormats, OfTheStrictListAreHeld) {
  const std::vector<Format> formats = {
      {"date", {"2024-02-29", "1999-12-31"}, {"2023-02-29", "2024-13-01", "2024-1-1"}},
      {"time", {"00:00:00Z", "23:59:59.25+01:00"}, {"24:00:00Z", "12:00:00", "1:00:00Z"}},
      {"date-time", {"2024-02-29T01:02:03Z"}, {"2024-02-30T01:02:03Z", "2024-02-29"}},
      {"duration",
       {"P1Y2M3D", "P3W", "PT1H", "PT5M2S", "P1DT12H", "P2M"},
       {"P", "P1DT", "PT", "P1Y2D", "P1W2D", "PT1H2S", "P1H", "1D"}},
      {"email",
       {"a@b.de", "first.last+tag@mail.example-site.co.uk"},
       {"a", "@b.de", "a@", "a b@c.de", "a@b..de", ".a@b.de", "a@-b.de", "a@b"}},
      {"hostname",
       {"localhost", "a.b.example.com", "my-host"},
       {"", "-a", "a-", "a..b", "a_b", ".a", "a.b."}},
      {"ipv4", {"0.0.0.0", "255.255.255.255", "192.168.1.10"}, {"256.1.1.1", "1.1.1", "01.1.1.1"}},
      {"ipv6",
       {"::", "::1", "1::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6::", "::2:3:4:5:6:7", "1::8"},
       {"1:2:3:4:5:6:7", "1::2::3", ":1", "1:", "12345::", "g::", "1:2:3:4:5:6:7:8:9", ":::"}},
      {"uri",
       {"https://example.com/a/b?q=1#f", "mailto:a@b.de", "urn:isbn:123", "http://a.b:80"},
       {"example.com/a", "https://", "https://a b", "://x", "1a:b"}},
      {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567e89b12d3a456426614174000"}}};
  for (const Format& format : formats) {
    const std::string schema = Json{{"type", "string"}, {"format", format.name}}.dump();
    const auto grammar = Grammar::from_json_schema(schema, "s");  // strict
    for (const char* text : format.valid) {
      EXPECT_TRUE(takes(grammar, Json(text).dump())) << format.name << " " << text;
    }
    for (const char* text : format.invalid) {
      EXPECT_FALSE(takes(grammar, Json(text).dump())) << format.name << " " << text;
    }
  }
}

std::size_t most_tops(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarAutomaton automaton(grammar);
  auto state = automaton.start();
  std::size_t most = automaton.tops(state).size();
  for (const char byte : text) {
    state = automaton.after(state, std::string_view(&byte, 1));
    if (state == GrammarAutomaton::kDead) return 0;
    most = std::max(most, automaton.tops(state).size());
  }
  return automaton.may_end(state) ? most : 0;
}

TEST(SchemaAlternatives, OfThousandsOfTaggedObjectsShareTheirBeginning) {
  for (const bool referred : {false, true}) {
    Json list = Json::array(), defs = Json::object();
    for (int i = 0; i < 2'500; ++i) {
      const std::string name = "k" + std::to_string(i);
      const Json one = {{"type", "object"},
                        {"properties", {{"t", {{"const", name}}}, {"v", {{"const", i}}}}},
                        {"required", Json::array({"t", "v"})},
                        {"additionalProperties", false}};
      if (referred) defs[name] = one;
      list.push_back(referred ? Json{{"$ref", "#/$defs/" + name}} : one);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      const Json schema = Json::object({{keyword, list}, {"$defs", defs}});
      const auto grammar = Grammar::from_json_schema(schema.dump(), "s");  // strict
      const std::size_t most = most_tops(grammar, R"({"t": "k1234", "v": 1234})");
      EXPECT_GT(most, 0u);
      EXPECT_LT(most, 60u);
      EXPECT_FALSE(takes(grammar, R"({"t": "k1234", "v": 1235})"));
      EXPECT_FALSE(takes(grammar, R"({"t": "k2500", "v": 2500})"));
      EXPECT_FALSE(takes(grammar, R"({"v": 1234, "t": "k1234"})"));
    }
  }
}

TEST(SchemaAlternatives, ThatMayHoldTogetherAreFoundAmongMany) {
  const auto object = [](const std::string& kind) {
    return Json{{"type", "object"},
                {"properties", {{"x", {{"type", "integer"}}}, {"kind", {{"const", kind}}}}},
                {"required", Json::array({"kind"})}};
  };
  Json list = Json::array();
  for (int i = 0; i < 100; ++i) list.push_back(object("k" + std::to_string(i)));
  list.push_back({{"type", "string"}});
  EXPECT_NO_THROW(Grammar::from_json_schema(Json::object({{"oneOf", list}}).dump(), "s"));
  for (const Json& more :
       {object("k7"), Json{{"type", "object"}}, Json{{"const", "text"}}, Json(true)}) {
    Json longer = list;
    longer.push_back(more);
    const std::string schema = Json::object({{"oneOf", longer}}).dump();
    EXPECT_THROW(Grammar::from_json_schema(schema, "s"), Error) << more;
    SchemaNotes notes;
    EXPECT_NO_THROW(Grammar::from_json_schema(schema, "s", &notes));
    ASSERT_EQ(notes.size(), 1u) << more;
    EXPECT_NE(notes[0].find("other alternative of 'oneOf'"), std::string::npos) << notes[0];
  }
}

TEST(SchemaSizes, GrowWithTheSchemaHoweverItNests) {
  std::string array = R"({"type":"integer"})", object = array, list, open;
  for (int i = 0; i < 28; ++i) {
    array = R"({"type":"array","minItems":1,"items":)" + array + "}";
    object = R"({"type":"object","properties":{"a":{"type":"null"},"b":)" + object + "}}";
    list += "[";
  }
  const auto arrays = Grammar::from_json_schema(array, "s");
  EXPECT_LT(arrays->places(), 4'000u);
  EXPECT_TRUE(takes(arrays, list + "7" + std::string(28, ']')));
  EXPECT_FALSE(takes(arrays, list + "]" + std::string(27, ']')));
  EXPECT_LT(Grammar::from_json_schema(object, "s")->places(), 6'000u);
  // Long names that differ only at their ends are different schemas.
  const std::string name(200, 'n');
  const auto both =
      Grammar::from_json_schema(R"({"properties":{")" + name + R"(1":{"type":["null"]},")" + name +
                                    R"(2":{"type":["boolean"]}}})",
                                "s");
  EXPECT_TRUE(takes(both, "{\"" + name + "2\":true}"));
  EXPECT_FALSE(takes(both, "{\"" + name + "2\":null}"));
}

TEST(SchemaWork, EndsWhenItIsStopped) {
  Json values = Json::array();
  for (int i = 0; i < 20'000; ++i) values.push_back("value " + std::to_string(i * 7919 % 1000003));
  const Json schema = Json{{"enum", values}};
  std::size_t looks = 0;
  const auto after = [&](std::size_t most) {
    looks = 0;
    return [&looks, most] { return ++looks > most; };
  };
  EXPECT_NO_THROW(Grammar::from_json_schema(schema, "s", nullptr, after(SIZE_MAX)));
  EXPECT_GT(looks, 5u);
  for (const std::size_t most : {0u, 3u}) {
    try {
      (void)Grammar::from_json_schema(schema, "s", nullptr, after(most));
      ADD_FAILURE() << most;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::interrupted);
      EXPECT_EQ(looks, most + 1);
    }
  }
}

constexpr const char* kTools = R"([{"function":{"name":"f","parameters":{"type":"object",
  "properties":{"c":{"$ref":"#/$defs/C"}},"required":["c"],"$defs":{"C":{"enum":["red","blue"]}}}}},
  {"function":{"name":"g","parameters":{}}}, {"function":{"name":"h"}},
  {"function":{"name":"i","parameters":{"type":"object","properties":{"n":{"type":"integer",
  "multipleOf":1009}},"required":["n"]}}}, {"function":{"name":"j","parameters":{"type":"string"}}}])";

TEST(ForcedCalls, ReferencesResolveWithinTheToolsOwnSchema) {
  const Json tools = parse_json(kTools, "tools");
  SchemaNotes notes;
  const auto any =
      forced_call_grammar({ToolCallStyle::hermes}, {.tools = tools, .source = "tools"}, "", &notes);
  EXPECT_TRUE(takes(any, R"(<tool_call>{"name": "f", "arguments": {"c": "red"}}</tool_call>)"));
  EXPECT_FALSE(takes(any, R"(<tool_call>{"name": "f", "arguments": {"c": "green"}}</tool_call>)"));
  ASSERT_EQ(notes.size(), 2u);  // unsupported and invalid tool schemas are noted
  EXPECT_NE(notes[0].find("tools: i: #/properties/n: the keyword 'multipleOf'"), std::string::npos);
  EXPECT_NE(notes[1].find("tools: j: expected 'parameters' of the type object"), std::string::npos);
  const std::vector<std::string> h = {"h"};
  const auto only = forced_call_grammar({ToolCallStyle::hermes},
                                        {.tools = tools, .source = "tools", .only = h}, "", &notes);
  EXPECT_TRUE(takes(only, R"(<tool_call>{"name": "h", "arguments": {}}</tool_call>)"));
  EXPECT_FALSE(takes(only, R"(<tool_call>{"name": "h", "arguments": {"a": 1}}</tool_call>)"));
  EXPECT_FALSE(takes(only, R"(<tool_call>{"name": "f", "arguments": {"c": "red"}}</tool_call>)"));
}

TEST(ForcedCalls, ArgumentsOfAnEmptySchemaAreAnObject) {
  const Json tools = parse_json(kTools, "tools");
  const std::vector<std::string> g = {"g"};
  const auto any = forced_call_grammar({ToolCallStyle::hermes},
                                       {.tools = tools, .source = "tools", .only = g}, "");
  EXPECT_TRUE(takes(any, R"(<tool_call>{"name": "g", "arguments": {"a": [1]}}</tool_call>)"));
  for (const char* other : {"1", "\"x\"", "[]", "null"}) {
    EXPECT_FALSE(takes(
        any, R"(<tool_call>{"name": "g", "arguments": )" + std::string(other) + "}</tool_call>"));
  }
}

constexpr const char* kAnswer =
    R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})";

TEST(AnswersAfterReasoning, BeginWhereTheReasoningEnds) {
  const Json schema = parse_json(kAnswer, "schema");
  const ReplyStyle style = {ToolCallStyle::none, "<think>", "</think>"};
  const auto of = [&](std::string_view prompt) {
    return answer_grammar(style, {schema, "s", true}, prompt);
  };
  const auto begun = of("<think>\n"), may = of("assistant\n"), over = of("<think>\n\n</think>\n\n");
  EXPECT_TRUE(takes(begun, "So {\"n\": 1}?</think>\n\n{\"n\": 2}"));
  EXPECT_FALSE(takes(begun, "{\"n\": 2}"));
  EXPECT_FALSE(takes(begun, "So.</think>\n\nThe answer is {\"n\": 2}"));
  EXPECT_TRUE(takes(may, "{\"n\": 2}"));
  EXPECT_TRUE(takes(may, "\n<think>So.</think>{\"n\": 2}"));
  EXPECT_FALSE(takes(may, "So.</think>{\"n\": 2}"));
  EXPECT_TRUE(takes(over, "{\"n\": 2}"));
  EXPECT_FALSE(takes(over, "<think>So.</think>{\"n\": 2}"));
}

TEST(AnswersAfterReasoning, SoDoForcedCallsAndCallsBesideAnAnswer) {
  const Json schema = parse_json(kAnswer, "schema"), tools = parse_json(kTools, "t");
  const std::vector<std::pair<ToolCallStyle, std::string>> calls = {
      {ToolCallStyle::hermes, "<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>"},
      {ToolCallStyle::xml, "<tool_call>\n<function=h>\n</function>\n</tool_call>"},
      {ToolCallStyle::llama3, "{\"name\": \"h\", \"parameters\": {}}"},
      {ToolCallStyle::mistral, "[TOOL_CALLS][{\"name\": \"h\", \"arguments\": {}}]"},
      {ToolCallStyle::gemma, "<|tool_call>call:h{}<tool_call|>"},
      {ToolCallStyle::deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>h<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>"}};
  for (const auto& [way, call] : calls) {
    const ReplyStyle style = {way, "<think>", "</think>"};
    SchemaNotes notes;
    const std::vector<std::string> h = {"h"};
    const CallRules rules = {.tools = tools, .source = "tools", .only = h};
    const auto forced = forced_call_grammar(style, rules, "<think>", &notes);
    EXPECT_TRUE(takes(forced, "Hm.</think>\n\n" + call)) << call;
    EXPECT_FALSE(takes(forced, call)) << call;
    EXPECT_FALSE(takes(forced, "Hm.</think>{\"n\": 3}")) << call;
    const bool several = way != ToolCallStyle::llama3;
    EXPECT_EQ(takes(forced, "Hm.</think>\n\n" + call + "\n" + call), several) << call;
    const auto both = call_or_answer_grammar(style, rules, {schema, "s"}, "<think>", &notes);
    EXPECT_TRUE(takes(both, "Hm.</think>\n\n" + call)) << call;
    EXPECT_TRUE(takes(both, "Hm.</think>{\"n\": 3}")) << call;
    EXPECT_FALSE(takes(both, "Hm.</think>Well, {\"n\": 3}")) << call;
    EXPECT_FALSE(takes(both, "Hm.</think>{\"m\": 3}")) << call;
  }
}

// In the xml style every argument is written as text, and the schema determines its type.
TEST(XmlArguments, StayTextsWhereTheSchemaAllowsOne) {
  const Json tools = parse_json(R"([{"function":{"name":"f","parameters":{"type":"object",
      "properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]},"b":{"type":["integer","string"]},
      "c":{"$ref":"#/$defs/T"},"d":{"enum":["1","2"]},"e":{"type":"integer"},"g":{"type":["integer","null"]}},
      "$defs":{"T":{"oneOf":[{"type":"string"},{"type":"object"}]}}}}}])",
                                "tools");
  ReplyReader reader({ToolCallStyle::xml}, "", true, tools);
  std::string text = "<tool_call>\n<function=f>\n";
  for (const char* name : {"a", "b", "c", "d", "e", "g"}) {
    text += std::string("<parameter=") + name + ">\n12345\n</parameter>\n";
  }
  text += "<parameter=a2>\nnull\n</parameter>\n</function>\n</tool_call>";
  ReplyPiece piece = reader.push(text);
  ReplyPiece rest = reader.finish();
  std::string arguments;
  for (const auto* part : {&piece, &rest}) {
    for (const ToolCallPiece& call : part->calls) arguments += call.arguments;
  }
  const Json found = parse_json(arguments, "arguments");
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_EQ(found[name], Json("12345")) << name;
  for (const char* name : {"e", "g"}) EXPECT_EQ(found[name], Json(12345)) << name;
  EXPECT_TRUE(found["a2"].is_null());
}

}  // namespace
}  // namespace leq::schema_test
