// Grammars of earlier requests are found by their schema's text; the most recent ones are kept.
#include "server/request.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

class Store : public testing::Test {
 protected:
  std::shared_ptr<const Grammar> get(const std::string& text) {
    const auto compile = [&]() -> CompiledGrammar {
      ++compiled_;
      return {Grammar::from_gbnf(text, "g"), {text + " note"}};
    };
    const CompiledGrammar found = store_.get(text, compile);
    EXPECT_EQ(found.notes, SchemaNotes{text + " note"});  // stored with it
    return found.grammar;
  }
  static std::string grammar(std::size_t i) { return "root ::= \"" + std::to_string(i) + "\""; }

  GrammarStore store_;
  std::atomic<std::size_t> compiled_ = 0;
};

TEST_F(Store, TheSameTextIsTheSameGrammar) {
  const auto first = get(grammar(1)), other = get(grammar(2));
  EXPECT_NE(first, other);
  EXPECT_EQ(get(grammar(1)), first);
  EXPECT_EQ(get(grammar(2)), other);
  EXPECT_EQ(compiled_, 2u);
}

TEST_F(Store, ThoseThatWereNotUsedForLongestGo) {
  const auto first = get(grammar(0));
  for (std::size_t i = 1; i < GrammarStore::kMostGrammars; ++i) get(grammar(i));
  EXPECT_EQ(get(grammar(0)), first);
  get(grammar(1000));  // one more than fits: 1 is evicted, 0 was used later
  compiled_ = 0;
  EXPECT_EQ(get(grammar(0)), first);
  EXPECT_EQ(compiled_, 0u);
  get(grammar(1));
  EXPECT_EQ(compiled_, 1u);
}

TEST_F(Store, WhatIsRefusedOrVeryLongIsNotKept) {
  EXPECT_THROW(get("root ::= ("), Error);
  EXPECT_THROW(get("root ::= ("), Error);
  EXPECT_EQ(compiled_, 2u);
  const std::string text = grammar(1) + std::string(GrammarStore::kMostBytes, ' ');
  EXPECT_NE(get(text), get(text));
}

TEST_F(Store, ThreadsShareWhatOneOfThemMade) {
  std::vector<std::shared_ptr<const Grammar>> found(8);
  std::vector<std::thread> threads;
  for (auto& one : found) threads.emplace_back([&] { one = get(grammar(7)); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : found) EXPECT_EQ(one, found[0]);
}

}  // namespace
}  // namespace leq
