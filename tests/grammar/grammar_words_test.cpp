// Grammars with vocabularies that cannot write everything: the allowed tokens, compared with all
// texts of the grammar, and the error if no token is allowed.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "chat/reply.h"
#include "errors.h"
#include "grammar/matcher.h"
#include "tokenizer/spec.h"

namespace leq {
namespace {

Tokenizer tokenizer_of(std::vector<std::string> pieces) {
  TokenizerSpec spec;
  spec.merge_order = MergeOrder::by_id;
  spec.pieces = std::move(pieces);
  spec.types.assign(spec.pieces.size(), TokenType::normal);
  spec.source = "test";
  return Tokenizer(spec);
}

std::string refusal(const std::string& gbnf, const std::vector<std::string>& pieces) {
  return test::error_of([&] {
    const Tokenizer tokenizer = tokenizer_of(pieces);
    GrammarMatcher matcher(Grammar::from_gbnf(gbnf, "g"),
                           make_token_trie(tokenizer, pieces.size()));
  });
}

TEST(GrammarWords, AGrammarThatNoTokensWriteIsRefusedBeforeWork) {
  EXPECT_EQ(refusal("root ::= \"ab\" | \"c\"", {"a", "b"}), "");
  EXPECT_EQ(refusal("root ::= \"\" | \"c\"", {"a"}), "");  // the empty text is possible
  for (const char* gbnf :
       {"root ::= \"c\"", "root ::= \"abc\"", "root ::= \"a\" root | \"a\" c\nc ::= [c-z]+",
        "root ::= (\"a\" | \"b\")* \"c\"", "root ::= [^ab]"}) {
    EXPECT_NE(refusal(gbnf, {"a", "b"}).find("grammar: "), std::string::npos) << gbnf;
  }
  // All bytes exist in tokens, but no token begins with the required byte.
  EXPECT_NE(refusal("root ::= \"ba\"", {"ab"}).find("grammar: "), std::string::npos);
}

// The texts of the grammar below, listed by hand.
const std::vector<std::string> kTexts = {"[]",     "[a]",     "[{}]",  "[a,a]", "[a,{}]",
                                         "[{},a]", "[{},{}]", "\"a\"", "\"{\"", "\"[\""};
constexpr const char* kGbnf =
    "root ::= \"[\" (item (\",\" item)?)? \"]\" | \"\\\"\" [a{[] \"\\\"\"\nitem ::= \"a\" | "
    "\"{}\"";

TEST(GrammarWords, OnlyWhatBytesOfTheVocabularyCanEndIsAllowed) {
  const std::vector<std::vector<std::string>> vocabularies = {
      {"[", "]", "a", ",", "{", "}", "\""},
      {"[", "]", "a", ",", "{", "\""},              // without }, no {} in a list, but { in a string
      {"[", "]", "a", "{", "}", "[a", "a]", "{}"},  // no comma, no string
      {"[", "]", "\"", "[]", "[{", "}]", "\"{\""}};
  for (const auto& pieces : vocabularies) {
    std::set<char> bytes;
    for (const auto& piece : pieces) bytes.insert(piece.begin(), piece.end());
    std::vector<std::string> left;  // texts that use only these bytes
    for (const auto& text : kTexts) {
      if (std::ranges::all_of(text, [&](char c) { return bytes.contains(c); }))
        left.push_back(text);
    }
    const Tokenizer tokenizer = tokenizer_of(pieces);
    GrammarMatcher matcher(Grammar::from_gbnf(kGbnf, "g"),
                           make_token_trie(tokenizer, pieces.size()));
    // All prefixes of the texts whose bytes are all in the vocabulary.
    std::set<std::string> beginnings;
    for (const auto& text : left) {
      for (std::size_t n = 0; n <= text.size(); ++n) beginnings.insert(text.substr(0, n));
    }
    for (const std::string& begun : beginnings) {
      const GrammarState state = matcher.after(matcher.start(), begun);
      std::vector<std::uint64_t> mask(matcher.words());
      matcher.allow(state, mask);
      for (std::size_t id = 0; id < pieces.size(); ++id) {
        const bool wanted = std::ranges::any_of(
            left, [&](const auto& text) { return text.starts_with(begun + pieces[id]); });
        EXPECT_EQ((mask[0] >> id & 1) != 0, wanted) << begun << " then " << pieces[id];
      }
    }
  }
}

// The tokens contain all bytes but cannot be combined, which is only detected during the reply.
TEST(GrammarWords, AReplyThatCannotGoOnSaysSo) {
  const Tokenizer tokenizer = tokenizer_of({"a", "bc"});
  const auto matcher = std::make_shared<GrammarMatcher>(Grammar::from_gbnf("root ::= \"ab\"", "g"),
                                                        make_token_trie(tokenizer, 2));
  const std::vector<Token> prompt = {0};
  Reply reply(tokenizer, prompt, Sampler({}, 2, {}), {.context = 9, .grammar = matcher});
  EXPECT_EQ(reply.request().allowed[0], 1u);
  EXPECT_EQ(reply.grammar_error(), "");
  reply.take(0);
  EXPECT_EQ(reply.request().allowed[0], 0u);
  EXPECT_EQ(reply.grammar_error(), "grammar: no token of this model can go on with it after \"a\"");
}

// The error is repeated as often as the text is tried, and what was allowed before it stays so.
TEST(GrammarWords, FullTablesStayFull) {
  const Tokenizer tokenizer = tokenizer_of({"(", ")"});
  GrammarMatcher matcher(Grammar::from_gbnf("root ::= \"(\" root \")\" | \"\"", "g"),
                         make_token_trie(tokenizer, 2), {}, {.stacks = 300});
  const std::string whole = std::string(20, '(') + std::string(20, ')');
  EXPECT_TRUE(matcher.may_end(matcher.after(matcher.start(), whole)));
  EXPECT_FALSE(matcher.is_crowded());
  for (int turn = 0; turn < 3; ++turn) {
    test::expect_error([&] { (void)matcher.after(matcher.start(), std::string(400, '(')); },
                       {"grammar: it nests deeper", "300 places"});
    EXPECT_TRUE(matcher.is_crowded());
    EXPECT_TRUE(matcher.may_end(matcher.after(matcher.start(), whole)));
  }
  EXPECT_FALSE(matcher.emptied()->is_crowded());
}

// Each of two replies needs more than half of what the tables hold, and no stack of the other one.
TEST(GrammarWords, FullTablesOfOtherRepliesEndNoReply) {
  const Tokenizer tokenizer = tokenizer_of({"(", ")", "[", "]"});
  const auto matcher = std::make_shared<GrammarMatcher>(
      Grammar::from_gbnf("root ::= \"(\" root \")\" | \"[\" root \"]\" | \"\"", "g"),
      make_token_trie(tokenizer, 4), std::vector<ShownToken>(), GrammarLimits{.stacks = 2'000});
  const std::vector<Token> prompt = {0};
  const auto reply = [&] {
    return Reply(tokenizer, prompt, Sampler({}, 4, {}), {.context = 9'999, .grammar = matcher});
  };
  Reply first = reply(), second = reply();
  std::size_t depth = 0;
  for (std::size_t more = 0; more < 20; ++depth) {
    ASSERT_EQ(first.request().allowed[0], depth == 0 ? 5u : 7u);
    first.take(0);
    if (matcher->is_crowded()) ++more;
  }
  for (std::size_t i = 0; i < depth; ++i) {
    ASSERT_EQ(second.request().allowed[0], i == 0 ? 5u : 13u) << i << " of " << depth;
    second.take(2);
  }
  EXPECT_EQ(second.stopped(), StopReason::none);
}

TEST(GrammarWords, AGrammarIsUtf8Throughout) {
  for (const std::string bad : {"\xff", "\xe2\x82", "\xed\xa0\x80", "\xc0\xaf"}) {
    for (const std::string& gbnf : {"root ::= \"a\"\n# " + bad, "root ::= \"" + bad + "\"",
                                    "root ::= [" + bad + "]", bad + "root ::= \"a\""}) {
      test::expect_error(
          [&] { (void)Grammar::from_gbnf(gbnf, "g"); },
          {"expected UTF-8, found '\\x", gbnf.find('\n') < gbnf.find(bad) ? "line 2" : "line 1"});
    }
  }
}

}  // namespace
}  // namespace leq
