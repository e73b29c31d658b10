// Random schemas of all keywords: whatever a reply may be is valid, or the schema has a note;
// strict refuses exactly the schemas that have one.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/walks.h"
#include "shared_data.h"

namespace leq {
namespace {

class Schemas {
 public:
  explicit Schemas(std::uint64_t seed) : random_(seed) {}

  Json schema() {
    Json made = value(3);
    made["$defs"] = {{"a b", {{"enum", Json::array({"x y", 7})}}},
                     {"é/~", {{"type", "string"}, {"maxLength", 3}}},
                     {"list", {{"type", "array"}, {"items", {{"$ref", "#/$defs/list"}}}}}};
    return made;
  }

 private:
  bool chance(std::uint32_t of) { return random_.bits() % of == 0; }
  int below(int most) {
    return static_cast<int>(random_.bits() % static_cast<std::uint32_t>(most));
  }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<int>(all.size()))];
  }

  Json value(int depth) {
    const int kind = below(depth > 0 ? 13 : 7);
    switch (kind) {
      case 0:
      case 1:
        return string();
      case 2:
        return number();
      case 3:
        return constants();
      case 4:
        return {{"type", one_of({"null", "boolean", "integer"})}};
      case 5:
        return {{"$ref", one_of({"#/$defs/a%20b", "#/$defs/%C3%A9~1~0", "#/$defs/list"})}};
      case 6: {
        Json made = string();
        made["type"] = Json::array({"string", one_of({"null", "integer"})});
        return made;
      }
      case 7:
      case 8:
        return array(depth);
      case 9:
        return alternatives(depth);
      case 10:
        return all_of(depth);
      default:
        return object(depth);
    }
  }

  Json string() {
    Json made = {{"type", "string"}};
    if (chance(3)) {
      made["pattern"] = one_of({"^[a-z]+$", "^a|b$", "[0-9]", "^(?:ab?){1,3}$", "^.{2,4}$",
                                "^(?=a)b$", "^c", "^\\w+ \\w+$", "^[^a]*$"});
    }
    if (chance(3)) {
      made["format"] = one_of({"date", "time", "date-time", "duration", "email", "hostname", "ipv4",
                               "ipv6", "uuid", "uri", "iri", "password"});
    }
    if (chance(4)) made["minLength"] = below(4);
    if (chance(4)) made["maxLength"] = 3 + below(8);
    if (chance(5)) {
      made["not"] = one_of<Json>({{{"const", "a"}},
                                  {{"enum", Json::array({"b", 1, "ab"})}},
                                  {{"type", "null"}},
                                  {{"pattern", "a"}}});
    }
    return made;
  }

  Json number() {
    Json made = {{"type", one_of({"integer", "number"})}};
    if (chance(3)) made["minimum"] = one_of<Json>({-20, 0, 3, -1.5, 2.25});
    if (chance(3)) made["maximum"] = one_of<Json>({30, 1000, 7.5, 99.99});
    if (chance(5)) made["exclusiveMinimum"] = below(5);
    if (chance(3)) made["multipleOf"] = one_of<Json>({1, 2, 7, 0.01, 2.5, 0.25, 1009, 60});
    if (chance(8)) made["not"] = {{"const", 4}};
    return made;
  }

  Json constants() {
    if (chance(3)) return {{"const", one_of<Json>({1, "x", 1.5, nullptr, Json::array({1}), true})}};
    Json list = Json::array();
    for (int i = 1 + below(6); i-- > 0;) {
      list.push_back(
          one_of<Json>({1, 1.0, "a", "b", "é\n", nullptr, false, Json::array({"a", 2})}));
    }
    return {{"enum", std::move(list)}};
  }

  Json array(int depth) {
    Json made = {{"type", "array"}};
    if (!chance(5)) made["items"] = value(depth - 1);
    if (chance(5)) made["prefixItems"] = Json::array({value(depth - 1), value(depth - 1)});
    if (chance(3)) made["minItems"] = below(3);
    if (chance(3)) made["maxItems"] = 2 + below(3);
    if (chance(3)) made["uniqueItems"] = true;
    return made;
  }

  Json object(int depth) {
    Json made = {{"type", "object"}}, properties = Json::object(), required = Json::array();
    for (int i = below(4); i-- > 0;) {
      const std::string name = one_of({"a", "B", "long name", "é", "$ref", "a/b", "\n"});
      if (name != "$ref" || chance(2)) properties[name] = value(depth - 1);
      if (chance(2)) required.push_back(name);
    }
    if (!properties.empty()) made["properties"] = properties;
    std::vector<std::string> unique;
    for (const Json& name : required) {
      if (std::ranges::find(unique, name.text()) == unique.end()) unique.push_back(name.text());
    }
    if (!unique.empty()) made["required"] = unique;
    if (chance(2)) {
      made["additionalProperties"] = one_of<Json>({true, false, {{"type", "integer"}}});
    }
    if (chance(5)) {
      made["propertyNames"] = one_of<Json>({{{"pattern", "^[a-z]*$"}},
                                            {{"enum", Json::array({"a", "B", "c"})}},
                                            {{"maxLength", 3}},
                                            {{"not", {{"const", "a"}}}},
                                            {{"format", "ipv4"}}});
    }
    if (chance(8)) made["minProperties"] = below(3);
    if (chance(8)) made["maxProperties"] = 1 + below(4);
    if (chance(8)) made["patternProperties"] = {{"^x", {{"type", "null"}}}};
    if (chance(12)) made["dependentRequired"] = {{"a", Json::array({"B"})}};
    return made;
  }

  Json alternatives(int depth) {
    Json list = Json::array();
    const bool tagged = chance(2);
    for (int i = 2 + below(3); i-- > 0;) {
      if (!tagged) {
        list.push_back(value(depth - 1));
        continue;
      }
      const Json tag = {{"const", one_of({"p", "q", "r", "s"})}};
      list.push_back({{"type", "object"},
                      {"properties", {{"kind", tag}, {"v", value(depth - 1)}}},
                      {"required", Json::array({"kind"})}});
    }
    return {{one_of({"anyOf", "oneOf"}), std::move(list)}};
  }

  Json all_of(int depth) {
    const Json other = {{"type", "object"}, {"properties", {{"z", value(depth - 1)}}}};
    return {{"allOf", Json::array({object(depth), other})}};
  }

  Random random_;
};

TEST(RandomSchemas, HaveOnlyValidRepliesOrANote) {
  const auto folder = test::shared_path("models/storyteller");
  if (!folder) GTEST_SKIP() << "no tokenizer";
  const auto words = words_of(*folder);
  constexpr std::size_t kSchemas = 2'000;
  Schemas schemas(55);
  Random random(7);
  Json cases = Json::array();
  std::size_t finished = 0, warned = 0, refused = 0;
  for (std::size_t i = 0; i < kSchemas; ++i) {
    const Json schema = schemas.schema();
    SchemaNotes notes;
    std::shared_ptr<const Grammar> loose, strict;
    try {
      loose = Grammar::from_json_schema(schema, "s", &notes);
    } catch (const Error&) {  // no value is valid
    }
    try {
      strict = Grammar::from_json_schema(schema, "s");
    } catch (const Error&) {
    }
    ASSERT_EQ(strict != nullptr, loose != nullptr && notes.empty()) << schema;
    refused += loose == nullptr ? 1 : 0;
    if (loose == nullptr) continue;
    GrammarMatcher matcher(loose, words->trie);
    Json documents = Json::array();
    for (int turn = 0; turn < 4; ++turn) {
      const std::string text = random_walk(matcher, *words, random, 120, false);
      if (text.empty()) continue;  // it did not end
      ++finished;
      warned += notes.empty() ? 0 : 1;
      documents.push_back(text);
    }
    if (!documents.empty()) {
      cases.push_back({{"schema", notes.empty() ? schema : Json(true)}, {"documents", documents}});
    }
  }
  std::cout << kSchemas << " schemas, " << refused << " without a valid value; " << finished
            << " finished replies, " << warned << " of them with a note\n";
  EXPECT_GT(finished - warned, kSchemas / 2);
  EXPECT_LT(refused, kSchemas / 4);
  const Validation found = validated(cases);
  if (!found.skipped.empty()) GTEST_SKIP() << found.skipped;
  EXPECT_TRUE(found.all_valid) << found.said;
}

}  // namespace
}  // namespace leq
