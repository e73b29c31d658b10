#include "grammar/watch.h"

#include <array>
#include <deque>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// The marks of one list as a prefix tree of bytes.
class MarkTree {
 public:
  static constexpr int kRoot = 0, kNone = -1;

  explicit MarkTree(const std::vector<WatchMark>& marks) : nodes_(1) {
    for (const WatchMark& mark : marks) {
      ensure(!mark.text.empty() && mark.text.back() != kAnyBlanks,
             "grammar: a mark without an end");
      int at = kRoot;
      for (const char byte : mark.text) {
        if (byte == kAnyBlanks) {
          nodes_[static_cast<std::size_t>(at)].blanks = true;
          continue;
        }
        const auto found = child(at, static_cast<std::uint8_t>(byte));
        at = found != kNone ? found : add(at, static_cast<std::uint8_t>(byte));
      }
      nodes_[static_cast<std::size_t>(at)].mark = &mark;
    }
    link();
  }

  const WatchMark* mark(int node) const {
    return node == kNone ? nullptr : nodes_[static_cast<std::size_t>(node)].mark;
  }
  // For marks at the beginning only: returns kNone once no mark can match.
  int step(int node, std::uint8_t byte) const {
    if (node == kNone) return kNone;
    const int to = child(node, byte);
    if (to != kNone) return to;
    const bool stays = nodes_[static_cast<std::size_t>(node)].blanks &&
                       kBlanks.find(static_cast<char>(byte)) != std::string_view::npos;
    return stays ? node : kNone;
  }
  // For marks at any position: returns the longest prefix of a mark that the text ends with.
  int search(int node, std::uint8_t byte) const {
    while (true) {
      if (const int to = child(node, byte); to != kNone) return to;
      if (node == kRoot) return kRoot;
      node = nodes_[static_cast<std::size_t>(node)].shorter;
    }
  }

 private:
  struct Node {
    std::map<std::uint8_t, int> children = {};
    const WatchMark* mark = nullptr;
    bool blanks = false;
    int shorter = kRoot;  // the longest suffix that begins a mark
  };

  int child(int node, std::uint8_t byte) const {
    const auto& children = nodes_[static_cast<std::size_t>(node)].children;
    const auto found = children.find(byte);
    return found == children.end() ? kNone : found->second;
  }
  int add(int node, std::uint8_t byte) {
    const int made = static_cast<int>(nodes_.size());
    nodes_[static_cast<std::size_t>(node)].children.emplace(byte, made);
    nodes_.emplace_back();
    return made;
  }
  void link() {
    std::deque<int> open = {kRoot};
    while (!open.empty()) {
      const int node = open.front();
      open.pop_front();
      for (const auto& [byte, to] : nodes_[static_cast<std::size_t>(node)].children) {
        const int shorter = nodes_[static_cast<std::size_t>(node)].shorter;
        if (node != kRoot) nodes_[static_cast<std::size_t>(to)].shorter = search(shorter, byte);
        open.push_back(to);
      }
    }
  }

  std::vector<Node> nodes_;
};

// All modes as one state machine: a state is a mode and the search states of its mark lists.
class Watch {
 public:
  explicit Watch(const std::vector<WatchMode>& modes) : modes_(modes) {
    for (const WatchMode& mode : modes) {
      starts_.emplace_back(mode.at_start);
      everywhere_.emplace_back(mode.anywhere);
    }
  }

  std::vector<GrammarBuilder::ByteState> states(std::size_t first, WatchEnd end) {
    state_of({first, MarkTree::kRoot, MarkTree::kRoot});
    while (!open_.empty()) {
      const auto [here, state] = open_.front();
      open_.pop_front();
      const bool closed = modes_[here.mode].closed;
      made_[static_cast<std::size_t>(state)].ends = closed || end == WatchEnd::anywhere;
      if (closed) continue;
      for (int byte = 0; byte < 256; ++byte) {
        add_edge(state, static_cast<std::uint8_t>(byte),
                 state_after(here, static_cast<std::uint8_t>(byte)));
      }
    }
    return std::move(made_);
  }

 private:
  struct Place {
    std::size_t mode = 0;
    int start = MarkTree::kRoot, anywhere = MarkTree::kRoot;
    auto operator<=>(const Place&) const = default;
  };

  std::int32_t add_state() {
    require(made_.size() < Grammar::kMaxPlaces, "grammar: more than ", Grammar::kMaxPlaces,
            " places for the marks of calls");
    made_.emplace_back();
    return static_cast<std::int32_t>(made_.size() - 1);
  }

  std::int32_t state_of(const Place& place) {
    const auto known = ids_.find(place);
    if (known != ids_.end()) return known->second;
    const std::int32_t state = add_state();
    ids_.emplace(place, state);
    open_.emplace_back(place, state);
    return state;
  }

  std::int32_t state_after(const Place& here, std::uint8_t byte) {
    const Place next = {here.mode, starts_[here.mode].step(here.start, byte),
                        everywhere_[here.mode].search(here.anywhere, byte)};
    const WatchMark* mark = starts_[here.mode].mark(next.start);
    if (mark == nullptr) mark = everywhere_[here.mode].mark(next.anywhere);
    if (mark == nullptr) return state_of(next);
    const std::int32_t after = state_of({mark->next, MarkTree::kRoot, MarkTree::kRoot});
    return mark->rule ? held_state(*mark->rule, after) : after;
  }

  // A state after which only the text of the rule can follow.
  std::int32_t held_state(std::int32_t rule, std::int32_t after) {
    const auto known = held_.find({rule, after});
    if (known != held_.end()) return known->second;
    const std::int32_t state = add_state();
    made_[static_cast<std::size_t>(state)].calls.push_back({rule, after});
    held_.emplace(std::pair(rule, after), state);
    return state;
  }

  void add_edge(std::int32_t from, std::uint8_t byte, std::int32_t to) {
    auto& edges = made_[static_cast<std::size_t>(from)].edges;
    const bool joins = !edges.empty() && edges.back().to == to && edges.back().last + 1 == byte;
    if (joins) {
      edges.back().last = byte;
    } else {
      edges.push_back({byte, byte, to});
    }
  }

  const std::vector<WatchMode>& modes_;
  std::vector<MarkTree> starts_, everywhere_;  // by mode
  std::vector<GrammarBuilder::ByteState> made_;
  std::map<Place, std::int32_t> ids_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> held_;
  std::deque<std::pair<Place, std::int32_t>> open_;
};

}  // namespace

GrammarBuilder::Expr watched_text(GrammarBuilder& builder, const std::vector<WatchMode>& modes,
                                  std::size_t first, WatchEnd end) {
  return builder.machine(Watch(modes).states(first, end));
}

}  // namespace leq
