// Byte pair merging: of all neighbouring symbols with a merge, the one of lowest rank (of equal
// ranks the leftmost) is merged, until none is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer/tables.h"

namespace leq {

class Merger {
 public:
  // Merges `symbols` in place. A symbol kEmptySlot merges with nothing. Short inputs are searched
  // linearly, long ones through a heap, so that the time is n log n.
  void merge(const MergeTable& table, std::vector<std::uint32_t>& symbols);

 private:
  void merge_long(const MergeTable& table, std::vector<std::uint32_t>& symbols);
  std::uint32_t rank_at(const MergeTable& table, const std::vector<std::uint32_t>& symbols,
                        std::uint32_t at, std::uint32_t& result) const;

  // Rank and place of pairs, lowest first: what pair it was is looked up again, so that a long word
  // takes 8 bytes a pair.
  std::vector<std::uint64_t> heap_;
  std::vector<std::uint32_t> next_;      // [symbols] the next living symbol
  std::vector<std::uint32_t> previous_;  // [symbols]
};

}  // namespace leq
