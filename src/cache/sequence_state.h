// The state of sequences between steps: KV pages (kv_cache.h), and recurrent states of a fixed
// size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/memory.h"
#include "cache/kv_cache.h"
#include "ranks/communicator.h"

namespace leq {

// The division of states among ranks: each has its own heads' part.
struct StateRanks {
  Communicator& ranks;
  std::vector<std::size_t> bytes;  // [ranks] bytes of each rank's part
};
// A read or write of one state, which is a collective operation if ranks share the state.
struct StateTransfer {
  enum class Kind : std::uint8_t { read, write } kind = Kind::read;
  std::int32_t state = 0;
};
// Callbacks by which the leader makes the other ranks take part in reads and writes.
struct StateLeading {
  StateRanks among;
  std::function<void(const StateTransfer&)> send;  // sends to the other ranks
};

// Recurrent states of a fixed size: one block of f32 numbers holds the states of all recurrent
// layers of a model after some token. States are immutable, because a step reads one block and
// writes another. Checkpoints, forks and cached prefixes can therefore share a state by reference,
// and restoring a state copies nothing.
class FixedStates {
 public:
  using Id = std::int32_t;
  static constexpr Id kZeros = -1;  // state before the first token; has no memory

  // Allocates `count` states of `bytes_each` at once. Each sequence uses two while a step runs.
  // `memory` must outlive the states.
  FixedStates(DeviceMemory& memory, std::size_t bytes_each, std::int64_t count, int sequences);

  std::size_t bytes_each() const { return bytes_each_; }  // bytes of this rank's part
  std::size_t whole_bytes() const;                        // bytes of the parts of all ranks
  std::int64_t count() const { return std::ssize(references_); }
  std::int64_t free_states() const { return std::ssize(free_); }

  Id state(std::int32_t sequence) const { return at(sequence).state; }
  // Number of tokens that the sequence's state includes.
  std::int64_t position(std::int32_t sequence) const { return at(sequence).position; }

  // The states that the current step reads and writes.
  struct StepStates {
    Id from = kZeros, to = kZeros;
  };
  StepStates step_states(std::int32_t sequence) const;
  // Returns null for the state of zeros.
  std::byte* bytes_of(Id state) const;
  // Allocates the state that the sequence's next step writes, unless it has one. If none is free,
  // drops checkpoints, the oldest first; throws Error of kind no_memory if this frees none.
  void begin_step(std::int32_t sequence);
  // The state that the step has written becomes the sequence's state, after `position` tokens. No
  // effect if no step has begun.
  void commit(std::int32_t sequence, std::int64_t position);

  // Keeps the current state for restore(), until its memory is needed for another state.
  void checkpoint(std::int32_t sequence);
  // Drops all checkpoints of the sequence.
  void drop_checkpoints(std::int32_t sequence);
  // The largest position up to `position` that can be passed to restore().
  std::int64_t restorable(std::int32_t sequence, std::int64_t position) const;
  // Restores a position that restorable() returned. Drops a step that has begun and all later
  // checkpoints.
  void restore(std::int32_t sequence, std::int64_t position);

  // Makes an empty sequence begin with a state that the caller references (hold()).
  void adopt(std::int32_t sequence, Id state, std::int64_t position);
  void drop(std::int32_t sequence);
  // Changes the position but not the state, for benchmarks.
  void pretend(std::int32_t sequence, std::int64_t position) { at(sequence).position = position; }
  // Allocates a new state after `position` tokens, which the caller fills with write(), for a
  // sequence loaded from a file.
  Id replace(std::int32_t sequence, std::int64_t position);

  // Reference counts: a state is kept as long as it is held.
  void hold(Id state);
  void release(Id state);

  // Read and write a state of whole_bytes(): the parts of all ranks, one behind the other.
  void read(Id state, std::span<std::byte> out) const;
  void write(Id state, std::span<const std::byte> in);
  // Makes this object the leader of ranks that hold the other parts.
  void lead(StateLeading leading) { leading_.emplace(std::move(leading)); }
  // One rank's part of read() and write(). `whole` is empty except on the leader.
  void give(Id state, const StateRanks& among, std::span<std::byte> whole) const;
  void take(Id state, const StateRanks& among, std::span<const std::byte> whole);

 private:
  struct Checkpoint {
    std::int64_t position = 0;
    Id state = kZeros;
    std::uint64_t made = 0;  // clock when it was made
  };
  struct Sequence {
    Id state = kZeros;
    std::int64_t position = 0;
    Id next = kZeros;                     // state that the current step writes
    std::vector<Checkpoint> checkpoints;  // in ascending order of positions
  };
  Sequence& at(std::int32_t sequence);
  const Sequence& at(std::int32_t sequence) const;
  Id take_free();
  bool evict_checkpoint();

  DeviceMemory& memory_;
  std::size_t bytes_each_;
  Buffer states_;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> references_;  // [count] number of holders of each state
  std::vector<Id> free_;                  // stack of free states
  std::uint64_t clock_ = 0;
  std::optional<StateLeading> leading_;
};

// The state of sequences between steps: KV pages of attention layers and recurrent states of a
// fixed size, which are appended to, committed, restored, shared and saved together. A model
// without recurrent layers has only pages.
//
// A view of KvCache and FixedStates, which must outlive it.
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
  // the restored position; later tokens must be computed again. Positions that were appended and
  // not committed can always be removed exactly.
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
