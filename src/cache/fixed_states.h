// Recurrent states of a fixed size: one block of f32 numbers holds the states of all recurrent
// layers of a model after some token. States are immutable: a step reads one block and writes
// another. So checkpoints, forks and cached prefixes share a state by reference, and restoring it
// copies nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/memory.h"
#include "comm/communicator.h"

namespace leq {

// The division of states among ranks. A whole state is a sequence of byte runs; every rank holds a
// part of each run, and stores its parts in the order of the runs.
struct StateRanks {
  Communicator& ranks;
  std::vector<std::vector<ByteRange>> runs;  // [runs][ranks], in the whole state
};
// A read or write of one state; where ranks share it, a collective operation.
struct StateTransfer {
  enum class Kind : std::uint8_t { read, write } kind = Kind::read;
  std::int32_t state = 0;
};
// What the leader needs to make the other ranks follow.
struct StateLeading {
  StateRanks among;
  std::function<void(const StateTransfer&)> send;  // the others
};

class FixedStates {
 public:
  using Id = std::int32_t;
  static constexpr Id kZeros = -1;  // before the first token; it has no memory

  // Asks for `count` states of `bytes_each` at once; each sequence takes two while a step runs.
  // `memory` must outlive the states.
  FixedStates(DeviceMemory& memory, std::size_t bytes_each, std::int64_t count, int sequences);

  std::size_t bytes_each() const { return bytes_each_; }  // on this rank
  std::size_t whole_bytes() const;                        // on all of them
  std::int64_t count() const { return std::ssize(references_); }
  std::int64_t free_states() const { return std::ssize(free_); }

  Id state(std::int32_t sequence) const { return at(sequence).state; }
  // Tokens that the sequence's state has seen.
  std::int64_t position(std::int32_t sequence) const { return at(sequence).position; }

  // The states that the current step reads and writes.
  struct StepStates {
    Id from = kZeros, to = kZeros;
  };
  StepStates step_states(std::int32_t sequence) const;
  // Null for zeros.
  std::byte* bytes_of(Id state) const;
  // A state to be written, where the sequence has none yet. Gives up checkpoints, the oldest first,
  // where none is free; throws Error of kind no_memory where that frees none.
  void begin_step(std::int32_t sequence);
  // The state that the step wrote becomes the sequence's, after `position` tokens. Does nothing
  // where no step has begun.
  void commit(std::int32_t sequence, std::int64_t position);

  // Keeps the current state for restore(), until its memory is needed.
  void checkpoint(std::int32_t sequence);
  // Drops all checkpoints of the sequence.
  void drop_checkpoints(std::int32_t sequence);
  // The largest position up to `position` that restore() can go to.
  std::int64_t restorable(std::int32_t sequence, std::int64_t position) const;
  // Restores a position that restorable() returned; drops a step that has begun, and later
  // checkpoints.
  void restore(std::int32_t sequence, std::int64_t position);

  // An empty sequence begins with a state that is held (hold()).
  void adopt(std::int32_t sequence, Id state, std::int64_t position);
  void drop(std::int32_t sequence);
  // Takes the current state for that of another position: for benchmarks.
  void pretend(std::int32_t sequence, std::int64_t position) { at(sequence).position = position; }
  // A new state after `position` tokens, to be filled by write(): for sequences that are loaded
  // from a file.
  Id replace(std::int32_t sequence, std::int64_t position);

  // Reference counts: a state lives as long as it is held.
  void hold(Id state);
  void release(Id state);

  // A state of whole_bytes(), of all ranks' parts.
  void read(Id state, std::span<std::byte> out) const;
  void write(Id state, std::span<const std::byte> in);
  // Makes this the leader of ranks that hold the other parts.
  void lead(StateLeading leading) { leading_.emplace(std::move(leading)); }
  // One rank's side of read() and write(); `whole` is empty but on the leader.
  void give(Id state, const StateRanks& among, std::span<std::byte> whole) const;
  void take(Id state, const StateRanks& among, std::span<const std::byte> whole);

 private:
  struct Checkpoint {
    std::int64_t position = 0;
    Id state = kZeros;
    std::uint64_t made = 0;  // the clock then
  };
  struct Sequence {
    Id state = kZeros;
    std::int64_t position = 0;
    Id next = kZeros;                     // the step at work writes it
    std::vector<Checkpoint> checkpoints;  // ascending
  };
  Sequence& at(std::int32_t sequence);
  const Sequence& at(std::int32_t sequence) const;
  Id take_free();
  bool evict_checkpoint();

  DeviceMemory& memory_;
  std::size_t bytes_each_;
  Buffer states_;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> references_;  // [count] holders of a state
  std::vector<Id> free_;                  // a stack
  std::uint64_t clock_ = 0;
  std::optional<StateLeading> leading_;
};

}  // namespace leq
