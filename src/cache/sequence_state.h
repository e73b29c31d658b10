// The state of sequences between steps: KV pages of attention layers and recurrent states of a
// fixed size, appended to, committed, restored, shared and saved together. A model without
// recurrent layers has pages only.
//
// A view of KvCache and FixedStates, which must outlive it.
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
  // Allocates the next `count` positions of a sequence, which a step computes. Throws Error where
  // memory is short; nothing has changed then.
  void append(std::int32_t sequence, std::int64_t count) const;
  // Commits the appended positions, whose step has been computed; call before the next append().
  void commit() const;

  // Makes the current position restorable, until memory is short. Costs nothing for models that
  // have pages only, which can be truncated anywhere.
  void checkpoint(std::int32_t sequence) const;
  // The same, and drops the sequence's earlier checkpoints.
  void only_checkpoint(std::int32_t sequence) const;
  // The sequence becomes what it was at `position`, or at the last position before it that can be
  // restored: a checkpoint where there are fixed states, 0 where pages have lost what the next
  // query reads. Returns the position that is left; what comes after it must be fed again.
  // Positions that were appended and not committed are dropped in any case, exactly.
  [[nodiscard]] std::int64_t restore(std::int32_t sequence, std::int64_t position) const;

  // `to` becomes a copy of `from`; both share what they have until one of them appends.
  void fork(std::int32_t from, std::int32_t to) const;
  // Empties the sequence.
  void drop(std::int32_t sequence) const;

  // The state of another sequence or of a cached prefix at `length`, with which an empty sequence
  // can begin: pages, and for recurrent layers the state after that position.
  struct Prefix {
    std::span<const std::int32_t> pages;
    std::int64_t length = 0;
    FixedStates::Id state = FixedStates::kZeros;
  };
  void adopt(std::int32_t sequence, const Prefix& prefix) const;

  // For measuring: the sequence goes on to `length` positions, with keys and values that repeat
  // those that are there (KvCache::repeat_pages) and the state as it is.
  void repeat(std::int32_t sequence, std::int64_t length) const;

  // A sequence as bytes, the same for every device (docs/kv-cache.md), and back: as KvCache::save
  // and load, followed by the recurrent state.
  std::vector<std::byte> save(std::int32_t sequence) const;
  void load(std::int32_t sequence, std::span<const std::byte> bytes, std::string_view source) const;

 private:
  KvCache* pages_;
  FixedStates* fixed_;
};

}  // namespace leq
