#include "tokenizer/merge.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace leq {
namespace {

// Up to here a linear search for the lowest rank is faster than the heap.
constexpr std::size_t kShort = 48;
constexpr std::uint32_t kEnd = 0xffffffffu;

void merge_short(const MergeTable& table, std::vector<std::uint32_t>& symbols) {
  std::array<std::uint32_t, kShort> ranks;  // [i] of the pair i, i + 1
  std::array<std::uint32_t, kShort> results;
  std::uint32_t* ids = symbols.data();
  std::size_t pairs = symbols.size() - 1;
  const auto look_up = [&](std::size_t i) {
    const MergeSlot& slot = table.find(ids[i], ids[i + 1]);
    ranks[i] = slot.rank;
    results[i] = slot.result;
  };
  for (std::size_t i = 0; i < pairs; ++i) look_up(i);
  while (pairs > 0) {
    std::size_t best = 0;
    std::uint32_t lowest = ranks[0];
    for (std::size_t i = 1; i < pairs; ++i) {
      if (ranks[i] < lowest) {
        lowest = ranks[i];
        best = i;
      }
    }
    if (lowest == kEmptySlot) break;
    ids[best] = results[best];
    const std::size_t moved = pairs - best - 1;
    std::memmove(ids + best + 1, ids + best + 2, moved * sizeof(std::uint32_t));
    std::memmove(&ranks[best], &ranks[best + 1], moved * sizeof(std::uint32_t));
    std::memmove(&results[best], &results[best + 1], moved * sizeof(std::uint32_t));
    --pairs;
    if (best > 0) look_up(best - 1);
    if (best < pairs) look_up(best);
  }
  symbols.resize(pairs + 1);
}

}  // namespace

void Merger::merge(const MergeTable& table, std::vector<std::uint32_t>& symbols) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort)
    merge_short(table, symbols);
  else
    merge_long(table, symbols);
}

// Puts the pair of `at` and its successor on the heap if it has a merge.
void Merger::push(const MergeTable& table, const std::vector<std::uint32_t>& symbols,
                  std::uint32_t at) {
  const std::uint32_t right = next_[at];
  if (right == kEnd) return;
  const MergeSlot& slot = table.find(symbols[at], symbols[right]);
  if (slot.rank == kEmptySlot) return;
  heap_.push_back({slot.rank, at, symbols[at], symbols[right], slot.result});
}

void Merger::merge_long(const MergeTable& table, std::vector<std::uint32_t>& symbols) {
  const auto count = static_cast<std::uint32_t>(symbols.size());
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  heap_.clear();
  next_.resize(count);
  previous_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    next_[i] = i + 1 < count ? i + 1 : kEnd;
    previous_[i] = i > 0 ? i - 1 : kEnd;
  }
  for (std::uint32_t i = 0; i < count; ++i) push(table, symbols, i);
  std::make_heap(heap_.begin(), heap_.end(), later);
  const auto push_ordered = [&](std::uint32_t at) {
    const std::size_t before = heap_.size();
    push(table, symbols, at);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), later);
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate top = heap_.back();
    heap_.pop_back();
    const std::uint32_t right = next_[top.at];
    // A candidate is stale once one of its symbols has been merged away (a dead one is kEmptySlot).
    if (symbols[top.at] != top.left || right == kEnd || symbols[right] != top.right) continue;
    symbols[top.at] = top.result;
    symbols[right] = kEmptySlot;
    next_[top.at] = next_[right];
    if (next_[right] != kEnd) previous_[next_[right]] = top.at;
    push_ordered(top.at);
    if (previous_[top.at] != kEnd) push_ordered(previous_[top.at]);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != kEnd; i = next_[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace leq
