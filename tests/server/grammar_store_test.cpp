// Grammars of earlier requests are found by their schema's text; the most recent ones are kept.
#include "server/grammar_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

class Store : public testing::Test {
 protected:
  std::shared_ptr<const Grammar> get(const std::string& text) {
    const std::string begin = text.substr(0, 100);  // long texts end with blanks
    const auto compile = [&]() -> CompiledGrammar {
      ++compiled_;
      return {Grammar::from_gbnf(begin, "g"), {begin + " note"}};
    };
    const CompiledGrammar found = store_.get(text, compile);
    EXPECT_EQ(found.notes, SchemaNotes{begin + " note"});  // stored with it
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
  for (std::size_t i = 1; i < GrammarStore::kMaxGrammars; ++i) get(grammar(i));
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
  const std::string text = grammar(1) + std::string(GrammarStore::kMaxBytesOfOne, ' ');
  EXPECT_NE(get(text), get(text));
}

TEST_F(Store, AllThatIsKeptHasABoundInBytes) {
  const std::string blanks(GrammarStore::kMaxBytesOfOne / 2, ' ');
  for (std::size_t i = 0; i < 20; ++i) {
    get(grammar(i) + blanks);
    EXPECT_GT(store_.bytes(), blanks.size());
    EXPECT_LE(store_.bytes(), GrammarStore::kMaxBytes);
  }
  compiled_ = 0;
  get(grammar(19) + blanks);
  EXPECT_EQ(compiled_, 0u);
  get(grammar(0) + blanks);
  EXPECT_EQ(compiled_, 1u);
}

TEST_F(Store, FewCompileAtOnceAndAWaitEndsWithItsClient) {
  std::atomic<std::size_t> now = 0, most = 0;
  std::atomic<bool> go_on = false;
  const auto slow = [&]() -> CompiledGrammar {
    const std::size_t all = ++now;
    std::size_t before = most;
    while (before < all && !most.compare_exchange_weak(before, all)) {
    }
    while (!go_on) std::this_thread::yield();
    --now;
    return {Grammar::from_gbnf("root ::= \"x\"", "g")};
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) threads.emplace_back([&, i] { store_.get(std::to_string(i), slow); });
  while (now < GrammarStore::kMaxAtOnce) std::this_thread::yield();
  EXPECT_THROW(store_.get("left", slow, [] { return true; }), Error);
  go_on = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, GrammarStore::kMaxAtOnce);
  EXPECT_TRUE(store_.get("after", slow).grammar != nullptr);
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
