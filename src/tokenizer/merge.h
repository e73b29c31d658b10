// Byte pair merging: of all adjacent symbols that have a merge, the pair with the lowest rank
// (among equal ranks the leftmost) is merged, until there is none left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer/tables.h"

namespace leq {

class Merger {
 public:
  // Merges `symbols` in place. A symbol kEmptySlot is never merged. Short inputs are searched
  // linearly, long ones with a heap, so that the time is O(n log n).
  void merge(const MergeTable& table, std::vector<std::uint32_t>& symbols);

 private:
  void merge_long(const MergeTable& table, std::vector<std::uint32_t>& symbols);
  std::uint32_t rank_at(const MergeTable& table, const std::vector<std::uint32_t>& symbols,
                        std::uint32_t at, std::uint32_t& result) const;

  // A heap of ranks and positions of pairs, lowest first. The symbols are looked up again, so that
  // a long word takes only 8 bytes per pair.
  std::vector<std::uint64_t> heap_;
  std::vector<std::uint32_t> next_;      // [symbols] the next remaining symbol
  std::vector<std::uint32_t> previous_;  // [symbols] the previous one
};

}  // namespace leq
