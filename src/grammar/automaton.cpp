#include "grammar/automaton.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "format/leq_layout.h"

namespace leq {
namespace {

constexpr std::size_t kMostStacks = 4'000'000;
constexpr std::size_t kMostTops = 4'000;       // limit for one state
constexpr std::size_t kMostKept = 20'000'000;  // limit of tops plus transitions in all states

}  // namespace

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)) {
  const auto& places = grammar_->places();
  // Marks places from which only the end of their rule can be reached.
  only_ends_.resize(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    only_ends_[i] = places[i].ends && places[i].edges.empty() && places[i].calls.empty() &&
                    places[i].skips.empty();
  }
  for (std::size_t i = 0; i < places.size(); ++i) {  // also places whose only skip leads to one
    const auto& p = places[i];
    if (p.ends || !p.edges.empty() || !p.calls.empty() || p.skips.size() != 1) continue;
    only_ends_[i] = only_ends_[static_cast<std::size_t>(p.skips[0])];
  }
  // Bytes that no edge distinguishes form one class.
  std::array<bool, 257> begins = {};
  for (const auto& p : places) {
    for (const auto& edge : p.edges) {
      begins[edge.first] = true;
      begins[std::size_t{edge.last} + 1] = true;
    }
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++classes_;
    class_of_[byte] = static_cast<std::uint16_t>(classes_);
  }
  ++classes_;
  stacks_.resize(2);  // kEnd, kElsewhere
  open_.push_back(stack_of(grammar_->start_of(grammar_->root()), kEnd));
  start_ = close();
}

GrammarAutomaton::Stack GrammarAutomaton::stack_of(std::int32_t place, Stack below) {
  const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(place)) << 32 |
                            static_cast<std::uint32_t>(below);
  const auto [found, is_new] = stack_ids_.emplace(key, static_cast<Stack>(stacks_.size()));
  if (is_new) {
    require(stacks_.size() < kMostStacks, "grammar: it nests deeper, or in more ways, than ",
            kMostStacks, " places can hold");
    stacks_.push_back({place, below});
  }
  return found->second;
}

GrammarAutomaton::State GrammarAutomaton::close() {
  Info made;
  ++turn_;
  seen_.resize(std::max(seen_.size(), stacks_.size()));
  while (!open_.empty()) {
    const Stack stack = open_.back();
    open_.pop_back();
    if (stack == kEnd || stack == kElsewhere) {
      (stack == kEnd ? made.may_end : made.leaves) = true;
      continue;
    }
    if (static_cast<std::size_t>(stack) >= seen_.size()) seen_.resize(stacks_.size());
    if (std::exchange(seen_[static_cast<std::size_t>(stack)], turn_) == turn_) continue;
    const StackNode here = node(stack);
    const Grammar::Place& place = grammar_->places()[static_cast<std::size_t>(here.place)];
    if (!place.edges.empty()) made.tops.push_back(stack);
    if (place.ends) open_.push_back(here.below);
    for (const std::int32_t to : place.skips) open_.push_back(stack_of(to, here.below));
    for (const auto& call : place.calls) {
      // If the rule ends right after the call, no frame is pushed, so lists do not grow the stack.
      const Stack back = only_ends(call.back) ? here.below : stack_of(call.back, here.below);
      open_.push_back(stack_of(grammar_->start_of(call.rule), back));
    }
    if (made.tops.size() > kMostTops) {
      open_.clear();
      fail("grammar: it is ambiguous in more than ", kMostTops, " ways");
    }
  }
  if (made.tops.empty() && !made.may_end && !made.leaves) return kDead;
  std::ranges::sort(made.tops);
  return state_of(std::move(made));
}

GrammarAutomaton::State GrammarAutomaton::state_of(Info made) {
  const std::uint64_t mark = checksum(std::as_bytes(std::span(made.tops))) * 4 +
                             (made.may_end ? 2u : 0u) + (made.leaves ? 1u : 0u);
  const auto [from, to] = state_ids_.equal_range(mark);
  for (auto known = from; known != to; ++known) {
    const Info& other = info(known->second);
    if (other.tops == made.tops && other.may_end == made.may_end && other.leaves == made.leaves) {
      return known->second;
    }
  }
  kept_ += made.tops.size() + classes_;
  require(kept_ <= kMostKept, "grammar: its states take more memory than they may");
  const auto id = static_cast<State>(states_.size());
  states_.push_back(std::move(made));
  state_ids_.emplace(mark, id);
  next_.resize(next_.size() + classes_, kUnknownState);
  return id;
}

GrammarAutomaton::State GrammarAutomaton::find_next(State state, std::uint8_t byte) {
  open_.clear();
  for (const Stack stack : info(state).tops) {
    const StackNode here = node(stack);
    for (const auto& edge : grammar_->places()[static_cast<std::size_t>(here.place)].edges) {
      if (byte >= edge.first && byte <= edge.last) open_.push_back(stack_of(edge.to, here.below));
    }
  }
  const State found = close();
  next_[static_cast<std::size_t>(state) * classes_ + class_of_[byte]] = found;
  return found;
}

GrammarAutomaton::State GrammarAutomaton::after(State state, std::string_view bytes) {
  for (const char byte : bytes) {
    if (state == kDead) return kDead;
    state = next(state, static_cast<std::uint8_t>(byte));
  }
  return state;
}

GrammarAutomaton::State GrammarAutomaton::below(Stack stack) {
  const Stack rest = node(stack).below;
  const auto known = below_.find(rest);
  if (known != below_.end()) return known->second;
  open_.assign(1, rest);
  const State state = close();
  below_.emplace(rest, state);
  return state;
}

GrammarAutomaton::State GrammarAutomaton::local_start(std::int32_t place) {
  const auto known = local_.find(place);
  if (known != local_.end()) return known->second;
  Info made;
  made.tops.push_back(stack_of(place, kElsewhere));
  const State state = state_of(std::move(made));
  local_.emplace(place, state);
  return state;
}

namespace {

using Places = std::vector<Grammar::Place>;

// For each place, the places that can reach an end if this place can.
std::vector<std::vector<std::int32_t>> places_before(const Places& places,
                                                     std::span<const std::int32_t> starts) {
  std::vector<std::vector<std::int32_t>> before(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto add_before = [&](std::int32_t to) {
      before[static_cast<std::size_t>(to)].push_back(static_cast<std::int32_t>(i));
    };
    for (const std::int32_t to : places[i].skips) add_before(to);
    for (const auto& edge : places[i].edges) add_before(edge.to);
    for (const auto& call : places[i].calls) {
      add_before(call.back);
      add_before(starts[static_cast<std::size_t>(call.rule)]);
    }
  }
  return before;
}

}  // namespace

bool drop_dead_ends(Places& places, std::span<const std::int32_t> starts, std::int32_t root) {
  std::vector<bool> ends(places.size(), false);
  const auto leads = [&](std::int32_t p) { return ends[static_cast<std::size_t>(p)]; };
  const auto edge_leads = [&](const Grammar::Edge& edge) { return leads(edge.to); };
  const auto call_leads = [&](const Grammar::Place::Call& call) {
    return leads(call.back) && leads(starts[static_cast<std::size_t>(call.rule)]);
  };
  const std::vector<std::vector<std::int32_t>> before = places_before(places, starts);
  std::vector<std::size_t> work;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].ends) work.push_back(i);
  }
  while (!work.empty()) {
    const std::size_t i = work.back();
    work.pop_back();
    if (ends[i]) continue;
    const Grammar::Place& here = places[i];
    ends[i] = here.ends || std::ranges::any_of(here.skips, leads) ||
              std::ranges::any_of(here.edges, edge_leads) ||
              std::ranges::any_of(here.calls, call_leads);
    if (ends[i]) work.insert(work.end(), before[i].begin(), before[i].end());
  }
  for (Grammar::Place& place : places) {
    std::erase_if(place.skips, [&](std::int32_t to) { return !leads(to); });
    std::erase_if(place.edges, [&](const auto& edge) { return !edge_leads(edge); });
    std::erase_if(place.calls, [&](const auto& call) { return !call_leads(call); });
  }
  return leads(starts[static_cast<std::size_t>(root)]);
}

}  // namespace leq
