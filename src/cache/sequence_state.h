// The state of sequences between steps: KV pages of attention layers and recurrent states of a
// fixed size, which are appended to, committed, restored, shared and saved together. A model
// without recurrent layers has only pages.
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
  FixedStates* fixed() const { return fixed_; }  // null if no layer has such a state

  std::int64_t length(std::int32_t sequence) const { return pages_->length(sequence); }
  // Allocates the next `count` positions of a sequence, which a step then computes. Throws Error if
  // there is too little memory; nothing is then changed.
  void append(std::int32_t sequence, std::int64_t count) const;
  // Commits appended positions whose step has been computed. To be called before the next append().
  void commit() const;

  // Makes the current position restorable until the memory is needed. Has no cost for models that
  // have only pages, because these can be truncated anywhere.
  void checkpoint(std::int32_t sequence) const;
  // Like checkpoint(), and drops the sequence's earlier checkpoints.
  void only_checkpoint(std::int32_t sequence) const;
  // Restores the sequence to `position`, or to the last restorable position before it. That is a
  // checkpoint if there are fixed states, and 0 if pages lack what the next query reads. Returns
  // the restored position; later tokens must be fed again. Positions that were appended and not
  // committed can always be removed exactly.
  [[nodiscard]] std::int64_t restore(std::int32_t sequence, std::int64_t position) const;

  // Makes `to` a copy of `from`. Both share pages and states until one of them appends.
  void fork(std::int32_t from, std::int32_t to) const;
  // Empties the sequence and releases its memory.
  void drop(std::int32_t sequence) const;

  // The state of another sequence or of a cached prefix at `length`, with which an empty sequence
  // can begin: pages and, for recurrent layers, the state after `length` tokens.
  struct Prefix {
    std::span<const std::int32_t> pages;
    std::int64_t length = 0;
    FixedStates::Id state = FixedStates::kZeros;
  };
  void adopt(std::int32_t sequence, const Prefix& prefix) const;

  // For measuring: extends the sequence to `length` positions with keys and values that repeat the
  // cached positions (KvCache::repeat_pages), and leaves the recurrent state unchanged.
  void repeat(std::int32_t sequence, std::int64_t length) const;

  // Convert a sequence to bytes (docs/kv-cache.md) and back: as KvCache::save and load, followed by
  // the recurrent state.
  std::vector<std::byte> save(std::int32_t sequence) const;
  void load(std::int32_t sequence, std::span<const std::byte> bytes, std::string_view source) const;
  // Throws Error naming `source` if the bytes are not a recurrent state of finite numbers.
  void check_state(std::span<const std::byte> bytes, std::string_view source) const;
  // Shortens a sequence of committed positions whose pages others may hold to `length`, with this
  // recurrent state and a partial last page of its own. Returns false if there are too few pages or
  // states, or if the pages lack what the next query reads; the sequence is then as before.
  [[nodiscard]] bool shorten(std::int32_t sequence, std::int64_t length,
                             std::span<const std::byte> bytes) const;

 private:
  KvCache* pages_;
  FixedStates* fixed_;
};

}  // namespace leq
