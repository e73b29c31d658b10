// Compares the prefix cache with a plain list of the kept texts: random prompts are kept, found,
// reused and evicted, and the content of each page identifies its tokens.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/layout.h"
#include "base/random.h"
#include "runtime/make_backend.h"

namespace leq {
namespace {

class Prefixes : public testing::Test {
 protected:
  static constexpr int kSequences = 4;
  explicit Prefixes(std::int64_t positions = 20 * kPageTokens, std::int64_t window = 0)
      : backend_(make_backend({.device = "cpu", .threads = 1})),
        cache_(backend_->memory(), backend_->layout(), shape_of(positions, window)),
        prefixes_(cache_) {}

  static KvShape shape_of(std::int64_t positions, std::int64_t window) {
    KvShape shape = {1, 1, 2, KvType::f32, KvType::f32, positions, kSequences};
    shape.window = window;
    return shape;
  }

  // Feeds what the cache does not have; a position's first float is a digest of its prefix.
  std::int64_t feed(std::int32_t sequence, const std::vector<Token>& tokens) {
    cache_.clear(sequence);
    const auto found = prefixes_.find(std::span(tokens).first(tokens.size() - 1), true);
    cache_.adopt(sequence, found.pages, found.tokens);
    const std::int64_t rest = std::ssize(tokens) - found.tokens;
    prefixes_.make_free(cache_.pages_to_append(sequence, rest));
    cache_.append(sequence, rest);
    float digest = 1;
    for (std::int64_t i = 0; i < std::ssize(tokens); ++i) {
      digest = digest * 3 + static_cast<float>(tokens[static_cast<std::size_t>(i)] + 1);
      digest -= 65536.0f * static_cast<float>(static_cast<int>(digest / 65536.0f));
      if (!has_place(sequence, i)) continue;  // no window contains it
      float& place = *slot(sequence, i);
      if (i < found.tokens) {
        EXPECT_EQ(place, digest) << "position " << i;
      } else {
        place = digest;
      }
    }
    cache_.commit();
    return found.tokens;
  }

  float* slot(std::int32_t sequence, std::int64_t position) {
    const KvLayer kv = cache_.layer(0);
    const auto page = static_cast<std::size_t>(
        kv.place(cache_.pages(sequence)[static_cast<std::size_t>(position / kPageTokens)]));
    return reinterpret_cast<float*>(kv.keys + page * kv.key_page_bytes) + position % kPageTokens;
  }

  bool has_place(std::int32_t sequence, std::int64_t position) {
    const auto index = static_cast<std::size_t>(position / kPageTokens);
    return cache_.layer(0).place(cache_.pages(sequence)[index]) >= 0;
  }

  std::unique_ptr<Backend> backend_;
  KvCache cache_;
  PrefixCache prefixes_;
};

std::vector<Token> counting(std::int64_t count, Token first = 0) {
  std::vector<Token> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(first + static_cast<Token>(i % 1000));
  return tokens;
}

TEST_F(Prefixes, TheLongestBeginningIsFound) {
  const auto long_one = counting(200);
  EXPECT_EQ(feed(0, long_one), 0);
  prefixes_.keep(0, long_one, false);
  auto other = counting(150);
  other.resize(180, 7);
  EXPECT_EQ(feed(1, other), 150);     // 128 in whole pages, 22 of the third page
  EXPECT_EQ(feed(1, long_one), 192);  // the partial last page was not kept
  prefixes_.keep(1, long_one, true);
  EXPECT_EQ(feed(2, long_one), 199);
  EXPECT_EQ(feed(2, counting(100, 5)), 0);
  EXPECT_EQ(feed(2, counting(1)), 0);
}

TEST_F(Prefixes, EqualTextsShareTheirPages) {
  const auto tokens = counting(128);
  feed(0, tokens);
  feed(1, tokens);
  prefixes_.keep(0, tokens, false);
  const std::int64_t before = cache_.free_pages();
  prefixes_.keep(1, tokens, false);
  EXPECT_EQ(cache_.free_pages(), before + 2);
  EXPECT_TRUE(std::ranges::equal(cache_.pages(0), cache_.pages(1)));
}

TEST_F(Prefixes, EvictsTheLeastRecentlyUsedLeavesFirst) {
  feed(0, counting(128, 0));
  prefixes_.keep(0, counting(128, 0), false);
  feed(1, counting(128, 500));
  prefixes_.keep(1, counting(128, 500), false);
  for (const std::int32_t sequence : {0, 1}) cache_.clear(sequence);
  EXPECT_EQ(prefixes_.idle_pages(), 4);
  prefixes_.find(counting(128, 0), true);
  prefixes_.make_free(cache_.free_pages() + 1);
  EXPECT_EQ(prefixes_.find(counting(128, 0), false).tokens, 128);
  EXPECT_EQ(prefixes_.find(counting(128, 500), false).tokens, 64);
  prefixes_.make_free(cache_.free_pages() + 100);
  EXPECT_EQ(prefixes_.idle_pages(), 0);
  EXPECT_EQ(cache_.free_pages(), cache_.page_count());
}

TEST_F(Prefixes, PagesInUseAreNotGivenUp) {
  feed(0, counting(128));
  prefixes_.keep(0, counting(128), false);
  prefixes_.make_free(cache_.page_count());
  EXPECT_EQ(prefixes_.find(counting(128), false).tokens, 128);
}

TEST_F(Prefixes, TextsOmitsPrefixesOfOtherTexts) {
  const auto first = counting(200), second = counting(150, 500);
  const auto beginning = counting(100);  // a prefix of the first text
  for (const auto& text : {beginning, first, second}) {
    feed(0, text);
    prefixes_.keep(0, text, true);
  }
  EXPECT_EQ(prefixes_.texts(), (std::vector{second, first}));
  prefixes_.find(first, true);
  EXPECT_EQ(prefixes_.texts(), (std::vector{first, second}));
}

TEST_F(Prefixes, EraseKeepsPagesSharedWithOtherTexts) {
  auto first = counting(200), second = first;
  std::fill(second.begin() + 130, second.end(), 7);
  feed(0, first);
  prefixes_.keep(0, first, true);
  feed(1, second);
  prefixes_.keep(1, second, true);
  EXPECT_EQ(prefixes_.erase(first), 0);  // in use
  cache_.clear(0);
  EXPECT_EQ(prefixes_.erase(first), 200 - 128);
  EXPECT_EQ(prefixes_.find(first, false).tokens, 130);
  EXPECT_EQ(prefixes_.find(second, false).tokens, 200);
  cache_.clear(1);
  EXPECT_EQ(prefixes_.erase(second), 200);
  EXPECT_TRUE(prefixes_.texts().empty());
  EXPECT_EQ(cache_.free_pages(), cache_.page_count());
}

TEST_F(Prefixes, RandomOperationsFindOnlyMatchingTokens) {
  Random random(11);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random.uniform() * static_cast<double>(n)) % n;
  };
  std::int64_t found = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    // The texts have few different prefixes of random lengths, so that pages are shared and split.
    auto tokens = counting(1 + below(250), static_cast<Token>(below(3)));
    for (std::int64_t i = below(4); i > 0; --i) {
      tokens[static_cast<std::size_t>(below(std::ssize(tokens)))] = static_cast<Token>(below(5));
    }
    const auto sequence = static_cast<std::int32_t>(below(kSequences));
    found += feed(sequence, tokens);
    if (below(3) > 0) prefixes_.keep(sequence, tokens, below(2) == 0);
    if (below(2) == 0) cache_.clear(sequence);
    ASSERT_FALSE(HasFailure()) << "turn " << turn;
  }
  EXPECT_GT(found, 10'000);
  for (std::int32_t sequence = 0; sequence < kSequences; ++sequence) cache_.clear(sequence);
  EXPECT_EQ(cache_.free_pages() + prefixes_.idle_pages(), cache_.page_count());
}

// With a window of 100 positions, the frames of pages that are out of the window go to other pages.
class WindowedPrefixes : public Prefixes {
 protected:
  WindowedPrefixes() : Prefixes(200 * kPageTokens, 100) {}
};

TEST_F(WindowedPrefixes, ALongTextBeginsAgainWithoutItsFirstPages) {
  const auto tokens = counting(1000);
  feed(0, tokens);
  prefixes_.keep(0, tokens, false);
  cache_.clear(0);
  EXPECT_EQ(prefixes_.find(std::span(tokens).first(300), false).tokens, 300);
  for (int turn = 0; turn < 3; ++turn) {  // other texts take the frames of its first pages
    const auto other = counting(1200, 2000 * (turn + 1));
    feed(1, other);
    prefixes_.keep(1, other, false);
  }
  EXPECT_EQ(prefixes_.find(std::span(tokens).first(300), false).tokens, 0);
  EXPECT_EQ(feed(0, tokens), 960);
  EXPECT_FALSE(has_place(0, 0));
  // A text that computes the first pages again gives them to the cache.
  const auto beginning = counting(300);
  EXPECT_EQ(feed(1, beginning), 0);
  prefixes_.keep(1, beginning, false);
  EXPECT_EQ(prefixes_.find(beginning, false).tokens, 256);
  EXPECT_EQ(prefixes_.find(tokens, false).tokens, 960);
  cache_.clear(1);
  prefixes_.make_free(cache_.page_count());
  EXPECT_EQ(prefixes_.idle_pages(), 0);
  EXPECT_EQ(cache_.free_pages() + std::ssize(cache_.pages(0)), cache_.page_count());
  EXPECT_EQ(prefixes_.find(tokens, false).tokens, 0) << "its first pages are free";
  cache_.clear(0);
  prefixes_.make_free(cache_.page_count());
  EXPECT_EQ(cache_.free_pages(), cache_.page_count());
}

TEST_F(WindowedPrefixes, RandomOperationsFindOnlyMatchingTokens) {
  Random random(5);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random.uniform() * static_cast<double>(n)) % n;
  };
  std::int64_t found = 0, behind = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    auto tokens = counting(1 + below(1300), static_cast<Token>(below(3)));
    for (std::int64_t i = below(3); i > 0; --i) {
      tokens[static_cast<std::size_t>(below(std::ssize(tokens)))] = static_cast<Token>(below(5));
    }
    const auto sequence = static_cast<std::int32_t>(below(kSequences));
    const std::int64_t begun = feed(sequence, tokens);
    found += begun;
    behind += begun > 0 && !has_place(sequence, 0) ? 1 : 0;
    if (below(3) > 0) prefixes_.keep(sequence, tokens, below(2) == 0);
    if (below(2) == 0) cache_.clear(sequence);
    ASSERT_FALSE(HasFailure()) << "turn " << turn;
  }
  EXPECT_GT(found, 10'000);
  EXPECT_GT(behind, 20);
  for (std::int32_t sequence = 0; sequence < kSequences; ++sequence) cache_.clear(sequence);
  EXPECT_EQ(cache_.free_pages() + prefixes_.idle_pages(), cache_.page_count());
  prefixes_.make_free(cache_.page_count());
  EXPECT_EQ(cache_.free_pages(), cache_.page_count());
}

// With fixed-size states in addition to pages, a text can only be continued where a state is kept.
// Here a state is a number computed from all tokens before it.
class PrefixStates : public testing::Test {
 protected:
  static constexpr int kSequences = 3;
  static float digest(std::span<const Token> tokens) {
    std::uint32_t hash = 1;
    for (const Token token : tokens) hash = hash * 31 + static_cast<std::uint32_t>(token) + 7;
    return static_cast<float>(hash % 65521);
  }

  // Feeds missing tokens in chunks, keeps whole pages after each; returns the tokens found.
  std::int64_t feed(std::int32_t sequence, const std::vector<Token>& tokens, std::int64_t chunk) {
    state_.drop(sequence);
    const auto found = prefixes_.find(std::span(tokens).first(tokens.size() - 1), true);
    state_.adopt(sequence, found.prefix());
    expect_state(sequence, tokens, found.tokens);
    for (std::int64_t fed = found.tokens; fed < std::ssize(tokens);) {
      const std::int64_t count = std::min(chunk, std::ssize(tokens) - fed);
      prefixes_.make_free(cache_.pages_to_append(sequence, count));
      prefixes_.make_states_free(1);
      state_.append(sequence, count);
      fed += count;
      const float number = digest(std::span(tokens).first(static_cast<std::size_t>(fed)));
      std::memcpy(states_.bytes_of(states_.step_states(sequence).to), &number, sizeof number);
      state_.commit();
      prefixes_.keep(sequence, std::span(tokens).first(static_cast<std::size_t>(fed)), false);
    }
    return found.tokens;
  }
  void expect_state(std::int32_t sequence, const std::vector<Token>& tokens, std::int64_t count) {
    ASSERT_EQ(states_.position(sequence), count);
    if (count == 0) return;
    float number = 0;
    states_.read(states_.state(sequence), std::as_writable_bytes(std::span(&number, 1)));
    EXPECT_EQ(number, digest(std::span(tokens).first(static_cast<std::size_t>(count))));
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .threads = 1});
  KvCache cache_{backend_->memory(),
                 backend_->layout(),
                 {1, 1, 2, KvType::f32, KvType::f32, 40 * kPageTokens, kSequences}};
  FixedStates states_{backend_->memory(), sizeof(float), 9, kSequences};
  SequenceState state_{cache_, &states_};
  PrefixCache prefixes_{state_};
};

TEST_F(PrefixStates, ATextBeginsAtTheLastStateThatIsKept) {
  const auto text = counting(300);
  EXPECT_EQ(feed(0, text, 128), 0);  // states after 128 and 256
  EXPECT_EQ(feed(1, text, 128), 256);
  auto other = counting(250);
  other.resize(400, 7);
  EXPECT_EQ(feed(1, other, 64), 128) << "no state after 192, though its page is there";
  EXPECT_EQ(feed(2, other, 64), 384);
  prefixes_.keep(2, other, true);
  EXPECT_EQ(feed(1, other, 64), 384) << "the last token is fed";
  auto longer = other;
  longer.resize(420, 9);
  EXPECT_EQ(feed(1, longer, 64), 400);
}

TEST_F(PrefixStates, EvictedAndDroppedStatesAreAllFreed) {
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    auto text = counting(1 + random.below(500), static_cast<Token>(100 * random.below(4)));
    if (random.below(2) == 0) text.resize(text.size() + random.below(90), 3);
    const auto sequence = static_cast<std::int32_t>(random.below(kSequences));
    feed(sequence, text, 64 * (1 + random.below(4)));
    expect_state(sequence, text, std::ssize(text));
    prefixes_.keep(sequence, text, random.below(2) == 0);
    if (random.below(3) == 0) state_.drop(sequence);
    ASSERT_FALSE(HasFailure()) << "text " << i;
  }
  for (std::int32_t sequence = 0; sequence < kSequences; ++sequence) state_.drop(sequence);
  prefixes_.make_states_free(states_.count());
  prefixes_.make_free(cache_.page_count());
  EXPECT_EQ(states_.free_states(), states_.count());
  EXPECT_EQ(cache_.free_pages(), cache_.page_count());
}

// Neither text is in use: the erased one leaves the other's last page, which begins like its own.
TEST_F(Prefixes, EraseLeavesOtherTextsOfTheSamePages) {
  auto first = counting(200), second = first, beginning = counting(150);
  std::fill(second.begin() + 130, second.end(), 7);
  for (const auto& text : {first, second}) {
    feed(0, text);
    prefixes_.keep(0, text, true);
  }
  cache_.clear(0);
  EXPECT_EQ(prefixes_.erase(beginning), 0) << "a part of a longer text";
  EXPECT_EQ(prefixes_.find(first, false).tokens, 200);
  EXPECT_EQ(prefixes_.erase(first), 200 - 128);
  EXPECT_EQ(prefixes_.find(first, false).tokens, 130);
  EXPECT_EQ(prefixes_.find(second, false).tokens, 200);
}

}  // namespace
}  // namespace leq
