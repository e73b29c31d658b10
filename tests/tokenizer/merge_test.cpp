// Compares merging with a reference that examines all pairs again after each merge.
#include "tokenizer/models.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "tokenizer_support.h"

namespace leq::test {
namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;
struct RankedMerge {
  std::uint32_t rank;
  std::uint32_t result;
};
using Merges = std::map<Pair, RankedMerge>;

std::vector<std::uint32_t> merge_slowly(const Merges& merges, std::vector<std::uint32_t> symbols) {
  for (;;) {
    std::size_t best = symbols.size();
    RankedMerge found{kEmptySlot, 0};
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto merge = merges.find({symbols[i], symbols[i + 1]});
      if (merge != merges.end() && merge->second.rank < found.rank) {
        found = merge->second;
        best = i;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = found.result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Fills a table that has a few spare slots, by linear probing.
std::vector<MergeSlot> fill_table(const Merges& merges, int bits) {
  std::vector<MergeSlot> slots(std::size_t{1} << bits);
  for (const auto& [pair, merge] : merges) {
    std::size_t at = hash_slot(std::uint64_t{pair.first} << 32 | pair.second, bits);
    while (slots[at].left != kEmptySlot) at = (at + 1) % slots.size();
    slots[at] = {pair.first, pair.second, merge.rank, merge.result};
  }
  return slots;
}

TEST(Merger, EqualsTheSlowWayForShortAndLongInputs) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    // There are few symbols, so that merges form chains and ranks (some of them equal) compete.
    constexpr std::uint32_t kSymbols = 12;
    Merges merges;
    for (std::uint32_t i = 0; i < 60; ++i) {
      const Pair pair{random.below(kSymbols), random.below(kSymbols)};
      merges[pair] = {random.below(20), random.below(kSymbols)};
    }
    const auto slots = fill_table(merges, 7);
    const MergeTable table(slots, 7);
    std::vector<std::uint32_t> symbols(1 + random.below(round % 3 == 0 ? 400 : 47));
    for (auto& symbol : symbols) symbol = random.below(kSymbols);
    const auto want = merge_slowly(merges, symbols);
    Merger merger;
    merger.merge(table, symbols);
    EXPECT_EQ(symbols, want);
  }
}

TEST(Merger, AnEmptyTableMergesNothing) {
  const std::vector<MergeSlot> slots(2);
  const MergeTable table(slots, 1);
  for (const std::size_t size : {0u, 1u, 2u, 1000u}) {
    std::vector<std::uint32_t> symbols(size, 3);
    const auto before = symbols;
    Merger merger;
    merger.merge(table, symbols);
    EXPECT_EQ(symbols, before);
  }
}

// A quadratic algorithm would take hours here.
TEST(Merger, AMillionSymbolsInOneWord) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers/gpt2");
  const Tokenizer tokenizer = open_tokenizer(data);
  constexpr std::size_t kBytes = 1u << 20;
  const std::string text(kBytes, 'a');
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, text), true), text);
  std::string words;
  while (words.size() < kBytes) words += "unbrokenwordsofprose";
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, words), true), words);
}

}  // namespace
}  // namespace leq::test
