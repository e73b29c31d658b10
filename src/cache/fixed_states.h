// States of a fixed size: what recurrent layers remember of all tokens before a position, one block
// of f32 numbers for all such layers of a model. A state does not change once its step has been
// computed: a step reads one and writes another. So a checkpoint, a fork and a prefix that is kept
// share it by reference, and going back to it copies nothing.
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

// The ranks among whom states are divided. A whole state is runs of bytes one after another, of
// each of which every rank has a part; what a rank has lies in the same order.
struct StateRanks {
  Communicator& ranks;
  std::vector<std::vector<ByteRange>> runs;  // [runs][ranks], in the whole state
};
// A state that is read or written: where ranks share it, all take part.
struct StateTransfer {
  enum class Way : std::uint8_t { read, write } way = Way::read;
  std::int32_t state = 0;
};
// The states of the rank that leads others.
struct StateLeading {
  StateRanks among;
  std::function<void(const StateTransfer&)> tell;  // the others
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

  // What the step at work reads and writes.
  struct StepStates {
    Id from = kZeros, to = kZeros;
  };
  StepStates step_states(std::int32_t sequence) const;
  // Null for zeros.
  std::byte* bytes_of(Id state) const;
  // A state to be written, where the sequence has none yet. Gives up checkpoints, the oldest first,
  // where none is free; throws Error of kind no_memory where that frees none.
  void begin_step(std::int32_t sequence);
  // What the step wrote is the sequence's state from now on, after `position` tokens. Nothing where
  // no step has begun.
  void commit(std::int32_t sequence, std::int64_t position);

  // The state as it is can be restored until it is given up for memory.
  void checkpoint(std::int32_t sequence);
  // Those that were made so far are no more.
  void forget_checkpoints(std::int32_t sequence);
  // The largest position up to `position` that restore() can go to.
  std::int64_t restorable(std::int32_t sequence, std::int64_t position) const;
  // To a position that restorable() named; a step that has begun is dropped, and so are later
  // checkpoints.
  void restore(std::int32_t sequence, std::int64_t position);

  // The sequence, which must be empty, begins with a state that somebody holds.
  void adopt(std::int32_t sequence, Id state, std::int64_t position);
  void drop(std::int32_t sequence);
  // The state as it is stands for that of another position: for measuring.
  void pretend(std::int32_t sequence, std::int64_t position) { at(sequence).position = position; }
  // The sequence's state after `position` tokens, to be filled by write(): for sequences that are
  // loaded.
  Id replace(std::int32_t sequence, std::int64_t position);

  // A state stays for as long as somebody holds it.
  void hold(Id state);
  void release(Id state);

  // A state of whole_bytes(), of all ranks' parts.
  void read(Id state, std::span<std::byte> out) const;
  void write(Id state, std::span<const std::byte> in);
  // From now on other ranks follow, who have the other parts.
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
  bool give_up_checkpoint();

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
