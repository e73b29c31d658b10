#include "tokenizer/merge.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

namespace leq {
namespace {

// Up to this length, a linear search for the lowest rank is faster than the heap.
constexpr std::size_t kShort = 48;
constexpr std::uint32_t kEnd = 0xffffffffu;

void merge_short(const MergeTable& table, std::vector<std::uint32_t>& symbols) {
  std::array<std::uint32_t, kShort> ranks;  // [i] rank of the pair i, i + 1
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

// The rank of the pair of `at` and its successor; kEmptySlot if the pair has no merge.
std::uint32_t Merger::rank_at(const MergeTable& table, const std::vector<std::uint32_t>& symbols,
                              std::uint32_t at, std::uint32_t& result) const {
  const std::uint32_t right = next_[at];
  if (right == kEnd || symbols[at] == kEmptySlot) return kEmptySlot;
  const MergeSlot& slot = table.find(symbols[at], symbols[right]);
  result = slot.result;
  return slot.rank;
}

void Merger::merge_long(const MergeTable& table, std::vector<std::uint32_t>& symbols) {
  const auto count = static_cast<std::uint32_t>(symbols.size());
  heap_.clear();
  heap_.reserve(count);
  next_.resize(count);
  previous_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    next_[i] = i + 1 < count ? i + 1 : kEnd;
    previous_[i] = i > 0 ? i - 1 : kEnd;
  }
  std::uint32_t result = 0;
  const auto push = [&](std::uint32_t at) {
    const std::uint32_t rank = rank_at(table, symbols, at, result);
    if (rank != kEmptySlot) heap_.push_back(std::uint64_t{rank} << 32 | at);
    return rank != kEmptySlot;
  };
  for (std::uint32_t i = 0; i < count; ++i) push(i);
  std::ranges::make_heap(heap_, std::greater());
  const auto push_ordered = [&](std::uint32_t at) {
    if (push(at)) std::ranges::push_heap(heap_, std::greater());
  };
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, std::greater());
    const std::uint64_t top = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    // A heap entry is stale if its pair has changed since; the new pair has an entry of its
    // own.
    if (rank_at(table, symbols, at, result) != top >> 32) continue;
    const std::uint32_t right = next_[at];
    symbols[at] = result;
    symbols[right] = kEmptySlot;
    next_[at] = next_[right];
    if (next_[right] != kEnd) previous_[next_[right]] = at;
    push_ordered(at);
    if (previous_[at] != kEnd) push_ordered(previous_[at]);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != kEnd; i = next_[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace leq
