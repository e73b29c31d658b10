// A pushdown automaton over bytes, simulated lazily. A state is the set of all stacks of places
// that the bytes read so far may lead to. Stacks share their lower parts; equal stacks, equal
// states and transitions are stored only once.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace leq {

class GrammarAutomaton {
 public:
  using State = std::int32_t;
  using Stack = std::int32_t;
  static constexpr State kDead = -1;

  explicit GrammarAutomaton(std::shared_ptr<const Grammar> grammar,
                            const GrammarLimits& limits = {});

  State start() const { return start_; }
  // Throws Error if the number of stacks or states exceeds its limit.
  State next(State state, std::uint8_t byte) {
    const std::size_t at = static_cast<std::size_t>(state) * classes_ + class_of_[byte];
    const State known = next_[at];
    return known != kUnknownState ? known : find_next(state, byte);
  }
  State after(State state, std::string_view bytes);

  bool may_end(State state) const { return info(state).may_end; }
  // Whether the rule in which local_start began may have ended.
  bool leaves(State state) const { return info(state).leaves; }
  bool can_read(State state) const { return !info(state).tops.empty(); }

  std::size_t bytes() const;  // of memory, about
  // Whether more than half of a limit is used.
  bool is_crowded() const {
    return stacks_.size() > limits_.stacks / 2 || kept_ > limits_.kept / 2;
  }

  // The stacks whose top place can read a byte, sorted by id.
  const std::vector<Stack>& tops(State state) const { return info(state).tops; }
  std::int32_t place_of(Stack stack) const { return node(stack).place; }
  // The state after the rule at the top of the stack has ended.
  State below(Stack stack);
  // The state at this place of a rule if the stack below it is unknown.
  State local_start(std::int32_t place);

 private:
  static constexpr State kUnknownState = -2;
  static constexpr Stack kEnd = 0;        // the bottom of a stack: the text is complete
  static constexpr Stack kElsewhere = 1;  // the unknown part below a local_start state

  struct StackNode {
    std::int32_t place = -1;
    Stack below = kEnd;
  };
  struct Info {
    std::vector<Stack> tops;
    bool may_end = false, leaves = false;
  };

  const StackNode& node(Stack stack) const { return stacks_[static_cast<std::size_t>(stack)]; }
  const Info& info(State state) const { return states_[static_cast<std::size_t>(state)]; }
  Stack stack_of(std::int32_t place, Stack below);
  State find_next(State state, std::uint8_t byte);
  // The state of all stacks that can be reached from open_ without reading a byte (the closure).
  State close();
  State state_of(Info info);
  bool only_ends(std::int32_t place) const {
    return static_cast<std::size_t>(place) < grammar_->places() && grammar_->ends(place);
  }
  // The place of a set in which some members are still to come. Such places are made when they are
  // reached, because a set has as many as it has subsets.
  enum class SetPhase : std::uint8_t { start, after_member, after_comma };
  struct SetPlace {
    std::int32_t set = 0;
    SetPhase phase = SetPhase::start;
    std::vector<bool> left = {};  // by member
    auto operator<=>(const SetPlace&) const = default;
  };
  std::int32_t set_place(SetPlace place);
  struct MadePlace {
    SetPlace of;
    std::vector<Grammar::Call> calls = {};
    std::vector<std::int32_t> skips = {};
    bool is_made = false;
  };
  void expand(MadePlace& made);
  // The edges, calls and skips at a place.
  Grammar::Place place_at(std::int32_t place);

  std::shared_ptr<const Grammar> grammar_;
  GrammarLimits limits_;
  std::map<SetPlace, std::int32_t> set_ids_;
  std::deque<MadePlace> made_places_;  // their indices follow those of the grammar's places
  std::array<std::uint16_t, 256> class_of_ = {};
  std::size_t classes_ = 0;
  std::vector<StackNode> stacks_;
  std::unordered_map<std::uint64_t, Stack> stack_ids_;
  std::vector<Info> states_;
  std::unordered_multimap<std::uint64_t, State> state_ids_;  // by checksum
  std::vector<State> next_;                                  // [states, classes]
  std::unordered_map<Stack, State> below_;
  std::unordered_map<std::int32_t, State> local_;
  State start_ = kDead;
  std::size_t kept_ = 0;  // sum of the numbers of tops of all states
  // Scratch of close():
  std::vector<Stack> open_;
  std::vector<std::uint32_t> seen_;  // by stack: the last closure that visited it
  std::uint32_t turn_ = 0;
};

}  // namespace leq
