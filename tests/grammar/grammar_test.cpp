// Grammars: the texts that they accept, compared with a matcher that tries everything, and the
// tokens that they allow, compared with trying all tokens one by one.
#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "base/text.h"
#include "grammar/automaton.h"
#include "grammar/matcher.h"
#include "grammar/walks.h"
#include "shared_data.h"

namespace leq {
namespace {

bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarAutomaton automaton(grammar);
  const auto state = automaton.after(automaton.start(), text);
  return state != GrammarAutomaton::kDead && automaton.may_end(state);
}

bool gbnf_accepts(std::string_view grammar, std::string_view text) {
  return accepts(Grammar::from_gbnf(grammar, "g"), text);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "";
}
std::string gbnf_error(std::string_view text) {
  return error_of([&] { Grammar::from_gbnf(text, "g.gbnf"); });
}
std::string schema_error(std::string_view text) {
  return error_of([&] { Grammar::from_json_schema(text, "s.json"); });
}

// --- A random grammar, written as GBNF, and its texts, found by trying everything. ---

struct Node {
  enum class Kind { text, set, rule, sequence, choice, repeat } kind = Kind::text;
  std::string text;  // or the characters of a set
  bool negated = false;
  int rule = 0, least = 0, most = 0;
  std::vector<Node> parts;
};

Node random_node(Random& random, int depth, int rules) {
  Node node;
  const auto pick = random.bits() % (depth == 0 ? 3 : 6);
  const auto letters = [&](std::uint32_t most) {
    std::string text;
    for (std::uint32_t n = random.bits() % (most + 1); n > 0; --n)
      text += static_cast<char>('a' + random.bits() % 3);
    return text;
  };
  if (pick == 0) {
    node.text = letters(2);
  } else if (pick == 1) {
    node.kind = Node::Kind::set;
    node.text = letters(1) + static_cast<char>('a' + random.bits() % 3);
    node.negated = random.bits() % 3 == 0;
  } else if (pick == 2) {
    // A rule refers to later rules only, after a letter: no left recursion, finitely many texts.
    node.kind = Node::Kind::rule;
    node.rule = static_cast<int>(random.bits() % static_cast<std::uint32_t>(rules));
  } else if (pick == 5) {
    node.kind = Node::Kind::repeat;
    node.least = static_cast<int>(random.bits() % 3);
    node.most = random.bits() % 2 == 0 ? -1 : node.least + static_cast<int>(random.bits() % 3);
    node.parts.push_back(random_node(random, depth - 1, rules));
  } else {
    node.kind = pick == 3 ? Node::Kind::sequence : Node::Kind::choice;
    for (std::uint32_t n = 1 + random.bits() % 3; n > 0; --n)
      node.parts.push_back(random_node(random, depth - 1, rules));
  }
  return node;
}

std::string written(const Node& node) {
  std::string out;
  switch (node.kind) {
    case Node::Kind::text:
      return "\"" + node.text + "\"";
    case Node::Kind::set:
      return std::string("[") + (node.negated ? "^" : "") + node.text + "]";
    case Node::Kind::rule:
      return "( \"" + std::string(1, static_cast<char>('a' + node.rule % 3)) + "\" r" +
             std::to_string(node.rule) + " )";
    case Node::Kind::repeat:
      out = "(" + written(node.parts[0]) + "){" + std::to_string(node.least) + ",";
      return out + (node.most < 0 ? "" : std::to_string(node.most)) + "}";
    default:
      for (const Node& part : node.parts) {
        if (!out.empty()) out += node.kind == Node::Kind::choice ? " | " : " ";
        out += written(part);
      }
      return "(" + out + ")";
  }
}

// Returns all positions at which a match that begins at `from` may end.
std::set<std::size_t> ends(const Node& node, const std::vector<Node>& rules, std::string_view text,
                           std::size_t from) {
  std::set<std::size_t> found;
  switch (node.kind) {
    case Node::Kind::text:
      if (text.substr(from).starts_with(node.text)) found.insert(from + node.text.size());
      return found;
    case Node::Kind::set:
      if (from < text.size() && (node.text.find(text[from]) != std::string::npos) != node.negated)
        found.insert(from + 1);
      return found;
    case Node::Kind::rule:
      if (from < text.size() && text[from] == 'a' + node.rule % 3)
        return ends(rules[static_cast<std::size_t>(node.rule)], rules, text, from + 1);
      return found;
    case Node::Kind::sequence:
      found = {from};
      for (const Node& part : node.parts) {
        std::set<std::size_t> next;
        for (const std::size_t at : found) next.merge(ends(part, rules, text, at));
        found = next;
      }
      return found;
    case Node::Kind::choice:
      for (const Node& part : node.parts) found.merge(ends(part, rules, text, from));
      return found;
    case Node::Kind::repeat: {
      std::set<std::size_t> now = {from};
      if (node.least == 0) found = now;
      // Beyond the number of characters, repetitions can only be empty.
      const int turns = node.most < 0 ? node.least + static_cast<int>(text.size()) + 1 : node.most;
      for (int i = 1; i <= turns && !now.empty(); ++i) {
        std::set<std::size_t> next;
        for (const std::size_t at : now) next.merge(ends(node.parts[0], rules, text, at));
        now = next;
        if (i >= node.least) found.insert(now.begin(), now.end());
      }
      return found;
    }
  }
  return found;
}

TEST(Gbnf, AcceptsWhatAMatcherThatTriesEverythingAccepts) {
  std::vector<std::string> texts = {""};
  for (std::size_t i = 0; texts.size() < 1093; ++i) {  // all texts of up to 6 letters
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  std::size_t accepted = 0, refused = 0, grammars = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    std::vector<Node> rules;
    std::string gbnf = "root ::= r0\n";
    for (int r = 0; r < 3; ++r) {
      rules.push_back(random_node(random, 3, 3));
      gbnf += "r" + std::to_string(r) + " ::= " + written(rules.back()) + " # a rule\n";
    }
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = Grammar::from_gbnf(gbnf, "g");
    } catch (const Error& error) {  // the grammar has no finite text
      EXPECT_NE(std::string(error.what()).find("no text fits"), std::string::npos) << error.what();
      for (const std::string& text : texts)
        EXPECT_FALSE(ends(rules[0], rules, text, 0).contains(text.size()));
      continue;
    }
    ++grammars;
    GrammarAutomaton automaton(grammar);
    for (const std::string& text : texts) {
      const auto state = automaton.after(automaton.start(), text);
      const bool found = state != GrammarAutomaton::kDead && automaton.may_end(state);
      const bool wanted = ends(rules[0], rules, text, 0).contains(text.size());
      ASSERT_EQ(found, wanted) << gbnf << text;
      (wanted ? accepted : refused) += 1;
    }
  }
  EXPECT_GT(grammars, 100u);
  EXPECT_GT(accepted, 1000u);
  EXPECT_GT(refused, 50000u);
}

TEST(Gbnf, ReadsLlamaCppsNotation) {
  EXPECT_TRUE(gbnf_accepts("root ::= \"a\" | # comment\n  \"b\"\n\n# end\n", "b"));
  EXPECT_TRUE(gbnf_accepts("root  ::= [a-c\\]\\x41\\u00e9] \"\\n\\\"\\\\\"", "\u00e9\n\"\\"));
  EXPECT_TRUE(gbnf_accepts("root ::= (\n \"x\"\n | y\n)+ \ny ::= [^x]", "xz\U0001f600x"));
  EXPECT_FALSE(gbnf_accepts("root ::= [^x]", "x"));
  EXPECT_FALSE(gbnf_accepts("root ::= [^x]", "\xff"));  // invalid UTF-8
  EXPECT_TRUE(gbnf_accepts("root ::= .", "\u20ac"));
  EXPECT_FALSE(gbnf_accepts("root ::= .", "\xe2\x82"));
  EXPECT_FALSE(gbnf_accepts("root ::= .", "\xed\xa0\x80"));  // half of a surrogate pair
  EXPECT_TRUE(gbnf_accepts("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2}", "aabbbcc"));
  EXPECT_FALSE(gbnf_accepts("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2}", "aabccc"));
  EXPECT_TRUE(
      gbnf_accepts("root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
                   "1+(2+(3+44))"));
  EXPECT_FALSE(
      gbnf_accepts("root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
                   "1+(2+(3+44)"));
  // The range includes characters of all lengths in UTF-8.
  const auto all = Grammar::from_gbnf("root ::= [\\x41-\\U0010fff0]", "g");
  for (const char32_t c :
       {0x41u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10fff0u}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_TRUE(accepts(all, text)) << static_cast<std::uint32_t>(c);
  }
  for (const char32_t c : {0x40u, 0x10fff1u}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_FALSE(accepts(all, text));
  }
}

TEST(Gbnf, RefusesByLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "there is no rule root"},
      {"a ::= \"b\"", "there is no rule root"},
      {"root ::= b", "the rule b is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
      {"root ::= \"a\"\n\nb = \"c\"", "line 3: expected ::= after the rule b"},
      {"\nb = \"c\"", "line 2: expected ::= after the rule b"},
      {"root ::= \"a", "expected \""},
      {"root ::= (\"a\"", "expected )"},
      {"root ::= [a-", "expected ]"},
      {"root ::= [z-a]", "from the larger to the smaller"},
      {"root ::= \"\\q\"", "an escape that is not known"},
      {"root ::= \"\\ud800\"", "4 hexadecimal digits"},
      {"root ::= \"a\"{3,2}", "at most fewer"},
      {"root ::= \"a\"{99999999999999999999}", "at most 10000 times"},
      {"root ::= <token>", "tokens in a grammar are not supported"},
      {"root ::= root \"a\" | \"b\"", "left recursion"},
      {"root ::= e root \"a\"\ne ::= \"\"", "left recursion"},
      {"root ::= a\na ::= b \"x\"\nb ::= \"y\"? a", "left recursion"},
      {"root ::= \"a\" root", "no text fits"},
      {"root ::= ((\"ab\"{10000}){10000}){10000}", "places"},
      {std::string("root ::= ") + std::string(100'000, '('), "nested deeper"},
  };
  for (const auto& [text, expected] : cases) {
    const std::string error = gbnf_error(text);
    EXPECT_NE(error.find(expected), std::string::npos) << text.substr(0, 60) << ": " << error;
    EXPECT_TRUE(error.starts_with("g.gbnf: ")) << error;
  }
  const std::string whole = "root ::= (\"a\" | [^b-c\\n]){2,3} r # c\nr ::= \"\\x41\"+ . \"\"\n";
  for (std::size_t i = 0; i < whole.size(); ++i) gbnf_error(whole.substr(0, i));
}

TEST(Grammars, NestAsDeepAsTheyLikeAndEndWhereTheyAreTooAmbiguous) {
  const auto brackets = Grammar::from_gbnf("root ::= \"(\" root \")\" | \"\"", "g");
  EXPECT_TRUE(accepts(brackets, std::string(100'000, '(') + std::string(100'000, ')')));
  EXPECT_FALSE(accepts(brackets, std::string(100'000, '(') + std::string(99'999, ')')));
  // Lists do not grow the automaton's stack; two alternatives for each letter do.
  EXPECT_TRUE(
      accepts(Grammar::from_gbnf("root ::= \"a\" root | \"\"", "g"), std::string(1'000'000, 'a')));
  const auto bad = Grammar::from_gbnf("root ::= \"a\" root \"a\" | \"a\" root \"b\" | \"a\"", "g");
  EXPECT_NE(error_of([&] { accepts(bad, std::string(100, 'a')); }).find("grammar: "),
            std::string::npos);
}

// Every rule turns out to be possibly empty after the one before it.
TEST(Gbnf, TheWorkOfRulesThatMayBeEmptyGrowsWithTheirNumber) {
  constexpr int kRules = 4'000;
  std::string rules, called;
  for (int i = 0; i < kRules; ++i) {
    const std::string name = "r" + std::to_string(i);
    rules = name + " ::= \"\"\n" + rules;
    called += " " + name;
  }
  std::size_t looks = 0;
  const auto count = [&] {
    ++looks;
    return false;
  };
  const std::string gbnf = rules + "x ::= \"b\"?" + called + "\nroot ::= \"a\" x";
  EXPECT_TRUE(accepts(Grammar::from_gbnf(gbnf, "g", count), "ab"));
  EXPECT_LT(looks * GrammarBuilder::kStepsOfALook, std::size_t{20 * kRules});
}

// Places that read nothing are not walked through by each state.
TEST(Grammars, StatesAreAsSmallAsWithoutPartsThatReadNothing) {
  const auto bytes_of = [](const std::string& gbnf) {
    const auto grammar = Grammar::from_gbnf(gbnf, "g");
    GrammarAutomaton automaton(grammar);
    const auto state = automaton.after(automaton.start(), "abba!");
    EXPECT_TRUE(state != GrammarAutomaton::kDead && automaton.may_end(state)) << gbnf.substr(0, 30);
    return automaton.bytes() - grammar->bytes();
  };
  const std::size_t plain = bytes_of("root ::= [ab]* \"!\"");
  for (const std::string part :
       {"\"\"", "(\"\" | \"\")", "\"\"*", "(\"\"?)*", "((\"\"*)* | \"\")", "e", "e*", "(e | f)?"}) {
    std::string parts;
    for (int i = 0; i < 2'000; ++i) parts += part + " ";
    EXPECT_LE(bytes_of("root ::= ([ab] " + parts + ")* \"!\"\ne ::= f \"\"?\nf ::= \"\""), plain)
        << part;
  }
}

// --- JSON schemas ---

struct SchemaCase {
  std::string schema;
  std::vector<std::string> valid, invalid;
};

const std::vector<SchemaCase>& schema_cases() {
  static const std::vector<SchemaCase> kCases = {
      {R"({"type": "object"})",
       {"{}", R"({"a":1})",
        R"({"a": [1, 2.5e-3, "x\n\u00e9\ud83d\ude00", null, true, {"b": {}}], "c": ""})"},
       {"[]", "", "{", R"({"a":})", R"({"a":1,})", R"({"a":01})", R"({a:1})", R"({"a":"\x"})",
        R"({"a":"\ud800"})", "{\"a\":\"\n\"}"}},
      {"true", {"1", "\"x\"", "[]", "-0.5"}, {"", "tru", "+1", ".5", "1."}},
      {R"({"type": "integer", "minimum": -13, "maximum": 257})",
       {"-13", "-9", "-1", "0", "9", "10", "99", "100", "199", "200", "249", "257"},
       {"-14", "-20", "258", "260", "300", "999", "-0", "007", "1.5", "1e2"}},
      {R"({"type": "integer", "exclusiveMinimum": 8, "maximum": 1000})",
       {"9", "10", "1000"},
       {"8", "1001", "-9"}},
      {R"({"type": "integer", "minimum": 95})", {"95", "99", "100", "12345"}, {"94", "9", "-95"}},
      {R"({"type": "integer", "maximum": -5})", {"-5", "-10", "-99999"}, {"-4", "0", "5"}},
      {R"({"type": "number", "minimum": -2, "maximum": 10})",
       {"-2", "-1.99", "-0.5", "0", "9.999", "10", "10.00"},
       {"-2.1", "10.5", "11", "1e9"}},
      {R"({"type": "number", "minimum": 1})", {"1", "1.5", "99.25"}, {"0.5", "-1"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("\u00fc\n")", "\"\u00e9\u00e9\U0001f600\""},
       {R"("a")", R"("abcd")", "ab"}},
      {R"({"type": "string", "pattern": "^[a-c]+\\d{2}$"})",
       {R"("a12")", R"("abcabc99")"},
       {R"("12")", R"("a1")", R"("a123")", R"("xa12")"}},
      {R"({"type": "string", "pattern": "b"})", {R"("abc")", R"("b")", R"("\nb\"")"}, {R"("ac")"}},
      {R"({"type": "string", "pattern": "^(?:a|\"x\")\\s?$"})",
       {R"("a")", R"("a\t")", R"("\"x\" ")"},
       {R"("x")"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")", R"("2000-02-29")", R"("2025-12-31")"},
       {R"("2025-02-29")", R"("1900-02-29")", R"("2025-04-31")", R"("2025-13-01")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2025-01-02T23:59:59Z")", R"("2025-01-02T03:04:05.678+01:30")"},
       {R"("2025-01-02")", R"("2025-01-02T24:00:00Z")"}},
      {R"({"type": "string", "format": "uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")"}},
      {R"({"enum": ["a", 1, null, {"b": [1]}, "\u00fc\"\n"]})",
       {R"("a")", "1", "null", R"({"b":[1]})", "\"\u00fc\\\"\\n\""},
       {R"("b")", "2", "true"}},
      {R"({"const": false})", {"false"}, {"true", "0"}},
      {R"({"type": ["string", "null"], "maxLength": 1})",
       {"null", R"("x")", R"("")"},
       {R"("xy")", "1"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {}}, "required": ["a", "c"]})",
       {R"({"a":1,"c":2})", R"({"a": 1, "b": "x", "c": null})", "{\n  \"a\": 1,\n  \"c\": []\n}"},
       {"{}", R"({"a":1})", R"({"c":1,"a":1})", R"({"a":"x","c":1})", R"({"a":1,"c":2,"d":3})"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}})",
       {"{}", R"({"a":1})", R"({"b":true})", R"({"a":1,"ab":true,"":false})"},
       {R"({"a":true})", R"({"b":1})", R"({"a":1,"a":true})"}},
      {R"({"properties": {"a": true}, "additionalProperties": false})",
       {"{}", R"({"a":[]})"},
       {R"({"b":1})"}},
      {R"({"type": "object", "required": ["x"], "additionalProperties": true})",
       {R"({"x":1,"y":2})"},
       {"{}", R"({"y":2})"}},
      {R"({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3})",
       {"[true]", "[true, false]", "[true,true,true]"},
       {"[]", "[1]", "[true,true,true,true]", "[true,]"}},
      {R"({"type": "array", "items": {"type": "null"}, "maxItems": 0})", {"[]"}, {"[null]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}, "minItems": 1})",
       {"[1]", R"([1, "x"])", R"([1,"x",true,false])"},
       {"[]", R"(["x"])", R"([1,true])"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}], "items": false})",
       {"[]", "[1]"},
       {"[1,2]"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}]})",
       {"3", R"({"a":null})"},
       {"{}", "\"3\""}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k", "x"]}, {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]})",
       {R"({"k":"a","x":1})", R"({"k":"b"})"},
       {R"({"k":"a"})", R"({"k":"c"})"}},
      {R"({"allOf": [{"$ref": "#/$defs/p"}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}], "$defs": {"p": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}})",
       {R"({"a":1,"b":null})"},
       {R"({"a":1})", R"({"b":null})"}},
      {R"({"$ref": "#/$defs/list", "$defs": {"list": {"type": "object", "properties": {"head": {"type": "integer"}, "tail": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/list"}]}}, "required": ["head", "tail"]}}})",
       {R"({"head":1,"tail":null})",
        R"({"head":1,"tail":{"head":2,"tail":{"head":3,"tail":null}}})"},
       {R"({"head":1})", R"({"head":1,"tail":{"head":2}})"}},
      {R"({"properties": {"a": {"properties": {"b": {"properties": {"c": {"properties": {"d": {"type": "null"}}}}, "required": ["c"]}}}, "e": {"properties": {"f": {"const": 1}}}}})",
       {R"({"a":{"b":{"c":{"d":null}}},"e":{"f":1}})", "{}", R"({"a":{},"e":{}})"},
       {R"({"a":{"b":{}}})", R"({"b":{}})"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
  };
  return kCases;
}

TEST(JsonSchema, AcceptsValidAndRefusesInvalidDocuments) {
  for (const SchemaCase& one : schema_cases()) {
    const auto grammar = Grammar::from_json_schema(one.schema, "s.json");
    for (const std::string& text : one.valid)
      EXPECT_TRUE(accepts(grammar, text)) << one.schema << " " << text;
    for (const std::string& text : one.invalid)
      EXPECT_FALSE(accepts(grammar, text)) << one.schema << " " << text;
  }
}

TEST(JsonSchema, IntegerBoundsAreExact) {
  Random random(3);
  for (int turn = 0; turn < 60; ++turn) {
    const std::int64_t a = static_cast<std::int64_t>(random.bits() % 2500) - 1200;
    const std::int64_t b = a + static_cast<std::int64_t>(random.bits() % 1500);
    const Json schema = {{"type", "integer"}, {"minimum", a}, {"maximum", b}};
    GrammarAutomaton automaton(Grammar::from_json_schema(schema.dump(), "s"));
    for (std::int64_t value = -3000; value <= 3000; ++value) {
      const auto state = automaton.after(automaton.start(), std::to_string(value));
      const bool found = state != GrammarAutomaton::kDead && automaton.may_end(state);
      ASSERT_EQ(found, value >= a && value <= b) << value << " in " << a << " " << b;
    }
  }
}

TEST(JsonSchema, RefusesWhatItWouldIgnoreByItsPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type": "object", "properties": {"a": {"type": "string", "not": {}}}})",
       "#/properties/a: the keyword 'not' is not supported"},
      {R"({"type": "array", "prefixItems": [{"not": {}}]})", "#/prefixItems/0: the keyword"},
      {R"({"type": "array", "prefixItems": [true, {"not": {}}]})", "#/prefixItems/1: the keyword"},
      {R"({"type": "array", "items": {"not": {}}})", "#/items: the keyword"},
      {R"({"type": "object", "additionalProperties": {"not": {}}})", "#/additionalProperties: the"},
      {R"({"anyOf": [{"type": "null"}, {"not": {}}]})", "#/anyOf/1: the keyword"},
      {R"({"oneOf": [{"type": "null"}, {"type": "string", "not": {}}]})", "#/oneOf/1: the keyword"},
      {R"({"allOf": [{"type": "array", "items": {"not": {}}}]})", "#/allOf/0/items: the keyword"},
      {R"({"allOf": [{"title": "t"}, {"type": "array", "items": {"not": {}}}]})",
       "#/allOf/1/items: the keyword"},
      {R"({"$ref": "#/$defs/x", "$defs": {"x": {"not": {}}}})", "#/$defs/x: the keyword"},
      {R"({"type": "array", "uniqueItems": true})", "'uniqueItems' is not supported"},
      {R"({"type": "number", "multipleOf": 1009})", "'multipleOf' is not supported"},
      {R"({"type": "object", "patternProperties": {"a": {}}})",
       "'patternProperties' is not supported"},
      {R"({"type": "object", "minProperties": 3, "properties": {"a": {}}})",
       "'minProperties' is not supported"},
      {R"({"type": "string", "format": "regex"})", "the format 'regex' is not supported"},
      {R"({"type": "string", "pattern": "^\\ud800$"})", "4 hexadecimal digits of a character"},
      {R"({"type": "string", "pattern": "^\\udfff$"})", "4 hexadecimal digits of a character"},
      {R"({"type": "thing"})", "there is no type 'thing'"},
      {R"({"$ref": "other.json"})", "only references within the schema"},
      {R"({"$ref": "#/$defs/x"})", "there is no '$defs'"},
      {R"({"$ref": "#"})", "left recursion"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})",
       "may hold together with alternative 0"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "pattern '(?=a)', offset 1"},
      {R"({"type": "string", "pattern": "\\bx"})", "\\b is not supported"},
      {R"({"type": "string", "minLength": -1})", "expected 'minLength' to be a whole number"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "maxLength is less than minLength"},
      {R"({"type": "integer", "minimum": "1"})", "expected 'minimum' to be a number"},
      {R"({"type": "integer", "minimum": 1.2, "maximum": 1.9})", "no whole number is between"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})", "no whole number is between 5 and 4"},
      {R"({"type": "number", "minimum": 5, "exclusiveMaximum": 5})", "no number is between"},
      {R"({"allOf": [false, {"type": "object"}]})", "no text fits"},
      {R"({"allOf": [{"minLength": 2}, {"maxLength": 5}]})", "#/allOf: 'allOf' is supported for"},
      {R"({"allOf": [{"enum": ["a"]}, {"type": "object"}]})", "'allOf' is supported for objects"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": false})",
       "'a' is required"},
      {"false", "no text fits"},
      {"[]", "expected a schema"},
      {"{", "invalid JSON"},
  };
  for (const auto& [schema, expected] : cases) {
    const std::string error = schema_error(schema);
    EXPECT_NE(error.find(expected), std::string::npos) << schema << ": " << error;
    EXPECT_TRUE(error.starts_with("s.json: ")) << error;
  }
  for (const SchemaCase& one : schema_cases()) {
    for (std::size_t i = 0; i < one.schema.size(); ++i) schema_error(one.schema.substr(0, i));
  }
  // A chain of references does not need a deep stack.
  Json defs = Json::object();
  for (int i = 0; i < 5'000; ++i) {
    defs["d" + std::to_string(i)] = {{"type", "array"},
                                     {"items", {{"$ref", "#/$defs/d" + std::to_string(i + 1)}}}};
  }
  defs["d5000"] = true;
  EXPECT_TRUE(
      accepts(Grammar::from_json_schema(Json{{"$ref", "#/$defs/d0"}, {"$defs", defs}}.dump(), "s"),
              "[[[]]]"));
}

// --- Tokens ---

TEST(GrammarMatcher, AllowsExactlyTheTokensThatCanComeNext) {
  for (const char* model : {"storyteller", "qwen3-tiny", "mistral-tiny"}) {
    const auto folder = test::shared_path(std::string("models/") + model);
    if (!folder) continue;
    const auto words = words_of(*folder);
    Random random(11);
    for (std::size_t i = 0; i < schema_cases().size(); i += 3) {
      GrammarMatcher matcher(Grammar::from_json_schema(schema_cases()[i].schema, "s"), words->trie);
      for (int turn = 0; turn < 2; ++turn) random_walk(matcher, *words, random, 12, true);
    }
    GrammarMatcher gbnf(
        Grammar::from_gbnf("root ::= w (\" \" w)* \".\"\nw ::= [a-z]+ | n\nn ::= [0-9]{1,3}", "g"),
        words->trie);
    random_walk(gbnf, *words, random, 12, true);
    EXPECT_EQ(gbnf.after(gbnf.start(), static_cast<Token>(words->tokenizer.size())), kOutOfGrammar);
    EXPECT_EQ(gbnf.after(gbnf.start(), Token{-1}), kOutOfGrammar);
  }
}

TEST(GrammarMatcher, WalksThroughItsMasksEndInDocumentsThatValidate) {
  const auto folder =
      test::shared_path("models/qwen3-tiny").value_or(*test::shared_path("models/storyteller"));
  const auto words = words_of(folder);
  Random random(5);
  Json cases = Json::array();
  std::size_t ended = 0;
  for (const SchemaCase& one : schema_cases()) {
    GrammarMatcher matcher(Grammar::from_json_schema(one.schema, "s"), words->trie);
    Json documents = Json::array();
    for (int turn = 0; turn < 12; ++turn) {
      const std::string text = random_walk(matcher, *words, random, 400, false);
      if (text.empty()) continue;  // it did not end
      ++ended;
      EXPECT_NO_THROW(parse_json(text, "walk")) << one.schema << " " << text;
      documents.push_back(text);
    }
    cases.push_back({{"schema", parse_json(one.schema, "s")}, {"documents", documents}});
  }
  EXPECT_GT(ended, schema_cases().size() * 3);
  const Validation found = validated(cases);
  if (!found.skipped.empty()) GTEST_SKIP() << found.skipped;
  EXPECT_TRUE(found.all_valid) << found.said;
}

}  // namespace
}  // namespace leq
