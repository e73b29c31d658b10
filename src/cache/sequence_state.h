// What a model remembers of its sequences between steps, as one thing: pages of keys and values of
// attention layers, and states of a fixed size of recurrent ones. Both kinds are appended to,
// committed, restored, shared and saved together; a model without recurrent layers has pages only.
//
// A view of the two: it is copied freely, and they must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/fixed_states.h"
#include "cache/kv_cache.h"

namespace leq {

class SequenceState {
 public:
  SequenceState(KvCache& pages, FixedStates* fixed = nullptr) : pages_(&pages), fixed_(fixed) {}

  KvCache& pages() const { return *pages_; }
  FixedStates* fixed() const { return fixed_; }  // null: no layer has such a state

  std::int64_t length(std::int32_t sequence) const { return pages_->length(sequence); }
  // Makes room for the next `count` positions of a sequence, which a step computes. Throws Error
  // where there is none; nothing has changed then.
  void append(std::int32_t sequence, std::int64_t count) const;
  // All that was appended has been computed: before the next step appends.
  void commit() const;

  // The sequence as it is now can be restored later, until memory is short. Costs nothing where
  // there are pages only, which can be cut anywhere.
  void checkpoint(std::int32_t sequence) const;
  // The same, and the sequence's earlier checkpoints are no more: who needs the last one only.
  void only_checkpoint(std::int32_t sequence) const;
  // The sequence becomes what it was at `position`, or at the last position before it that can be
  // restored: a checkpoint where there are fixed states, 0 where pages have lost what the next
  // query reads. Returns the position that is left; what comes after it must be fed again.
  // Positions that were appended and not committed are dropped in any case, exactly.
  [[nodiscard]] std::int64_t restore(std::int32_t sequence, std::int64_t position) const;

  // `to` becomes a copy of `from`; both share what they have until one of them appends.
  void fork(std::int32_t from, std::int32_t to) const;
  // The sequence is empty.
  void drop(std::int32_t sequence) const;

  // An empty sequence begins with what another one, or a prefix that is kept, had at `length`:
  // pages, and where there are fixed states the one of that position.
  struct Prefix {
    std::span<const std::int32_t> pages;
    std::int64_t length = 0;
    FixedStates::Id state = FixedStates::kZeros;
  };
  void adopt(std::int32_t sequence, const Prefix& prefix) const;

  // For measuring: the sequence goes on to `length` positions, with keys and values that repeat
  // those that are there (KvCache::repeat_pages) and the state as it is.
  void repeat(std::int32_t sequence, std::int64_t length) const;

  // A sequence as bytes that no device's layout shows in (docs/kv-cache.md), and back: as
  // KvCache::save and load, followed by the fixed state.
  std::vector<std::byte> save(std::int32_t sequence) const;
  void load(std::int32_t sequence, std::span<const std::byte> bytes, std::string_view source) const;

 private:
  KvCache* pages_;
  FixedStates* fixed_;
};

}  // namespace leq
