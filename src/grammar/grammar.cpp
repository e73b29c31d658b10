#include "grammar/grammar.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::uint32_t kMaxDepth = 400;  // nesting of an expression
constexpr std::size_t kMaxNodes = 2'000'000;

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

// Removes all edges, calls and skips from which no end can be reached, so that every allowed prefix
// can be continued to a complete text. `starts`: the first place of each rule. Returns false if the
// rule `root` then matches no text.
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

}  // namespace

std::vector<CharRange> inverted(std::vector<CharRange> ranges) {
  std::ranges::sort(ranges, {}, &CharRange::first);
  std::vector<CharRange> others;
  char32_t next = 0;
  for (const CharRange& range : ranges) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = std::max<char32_t>(next, range.last + 1);
  }
  if (next <= kLastCharacter) others.push_back({next, kLastCharacter});
  return others;
}

GrammarBuilder::GrammarBuilder(std::string_view source) : source_(source) {}

GrammarBuilder::Expr GrammarBuilder::add(Node node) {
  for (const Expr part : node.parts) node.depth = std::max(node.depth, nodes_[part].depth + 1);
  require(node.depth <= kMaxDepth, source_, ": nested deeper than ", kMaxDepth);
  require(nodes_.size() < kMaxNodes, source_, ": a grammar of more than ", kMaxNodes, " parts");
  nodes_.push_back(std::move(node));
  return static_cast<Expr>(nodes_.size() - 1);
}

GrammarBuilder::Expr GrammarBuilder::text(std::string_view bytes) {
  return add({.kind = Kind::text, .bytes = std::string(bytes)});
}

GrammarBuilder::Expr GrammarBuilder::chars(std::span<const CharRange> ranges) {
  return add({.kind = Kind::chars, .ranges = {ranges.begin(), ranges.end()}});
}

GrammarBuilder::Expr GrammarBuilder::sequence(std::vector<Expr> parts) {
  return add({.kind = Kind::sequence, .parts = std::move(parts)});
}

GrammarBuilder::Expr GrammarBuilder::choice(std::vector<Expr> parts) {
  return add({.kind = Kind::choice, .parts = std::move(parts)});
}

GrammarBuilder::Expr GrammarBuilder::repeat(Expr part, std::int64_t least, std::int64_t most) {
  return add({.kind = Kind::repeat, .least = least, .most = most, .parts = {part}});
}

GrammarBuilder::Expr GrammarBuilder::call(std::int32_t rule) {
  return add({.kind = Kind::call, .rule = rule});
}

GrammarBuilder::Expr GrammarBuilder::machine(std::vector<ByteState> states) {
  ensure(!states.empty(), "grammar: a machine without states");
  return add({.kind = Kind::machine, .states = std::move(states)});
}

GrammarBuilder::Expr GrammarBuilder::set(Grammar::Set members) {
  return add({.kind = Kind::set, .members = std::move(members)});
}

std::int32_t GrammarBuilder::rule(std::string_view name) {
  const auto known = names_.find(name);
  if (known != names_.end()) return known->second;
  const auto id = static_cast<std::int32_t>(rules_.size());
  rules_.push_back({.name = std::string(name)});
  names_.emplace(name, id);
  return id;
}

void GrammarBuilder::define(std::int32_t rule, Expr expression) {
  Rule& defined = rules_[static_cast<std::size_t>(rule)];
  require(!defined.defined, source_, ": the rule ", printable(defined.name), " is defined twice");
  defined.expression = expression;
  defined.defined = true;
}

std::shared_ptr<const Grammar> GrammarBuilder::finish(std::int32_t root) {
  for (const Rule& rule : rules_) {
    require(rule.defined, source_, ": the rule ", printable(rule.name), " is not defined");
    starts_.push_back(place());
  }
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const std::int32_t end = place();
    at(end).ends = true;
    emit(rules_[i].expression, starts_[i], end);
  }
  refuse_left_recursion();
  require(drop_dead_ends(places_, starts_, root), source_, ": no text fits");
  std::shared_ptr<Grammar> grammar(new Grammar());
  grammar->places_ = std::move(places_);
  grammar->sets_ = std::move(sets_);
  grammar->starts_ = std::move(starts_);
  grammar->root_ = root;
  return grammar;
}

std::int32_t GrammarBuilder::place() {
  require(places_.size() < Grammar::kMaxPlaces, source_, ": a grammar of more than ",
          Grammar::kMaxPlaces, " places; shorten what it counts");
  places_.emplace_back();
  return static_cast<std::int32_t>(places_.size() - 1);
}

void GrammarBuilder::emit(Expr expression, std::int32_t from, std::int32_t to) {
  const Node& node = nodes_[expression];
  switch (node.kind) {
    case Kind::text:
      for (std::size_t i = 0; i < node.bytes.size(); ++i) {
        const std::int32_t next = i + 1 < node.bytes.size() ? place() : to;
        const auto byte = static_cast<std::uint8_t>(node.bytes[i]);
        at(from).edges.push_back({byte, byte, next});
        from = next;
      }
      if (node.bytes.empty()) at(from).skips.push_back(to);
      return;
    case Kind::chars:
      return emit_chars(node.ranges, from, to);
    case Kind::sequence:
      for (std::size_t i = 0; i < node.parts.size(); ++i) {
        const std::int32_t next = i + 1 < node.parts.size() ? place() : to;
        emit(node.parts[i], from, next);
        from = next;
      }
      if (node.parts.empty()) at(from).skips.push_back(to);
      return;
    case Kind::choice:
      for (const Expr part : node.parts) {
        // Each part starts at a place of its own, because a part may loop back to its start.
        const std::int32_t own = place();
        at(from).skips.push_back(own);
        emit(part, own, to);
      }
      return;
    case Kind::repeat:
      return emit_repeat(node, from, to);
    case Kind::call:
      at(from).calls.push_back({node.rule, to});
      return;
    case Kind::machine:
      return emit_machine(node, from, to);
    case Kind::set:
      return emit_set(node, from, to);
  }
}

void GrammarBuilder::emit_repeat(const Node& node, std::int32_t from, std::int32_t to) {
  const Expr part = node.parts[0];
  for (std::int64_t i = 0; i < node.least; ++i) {
    const std::int32_t next = place();
    emit(part, from, next);
    from = next;
  }
  if (node.most == kNoLimit) {
    const std::int32_t turn = place();
    at(from).skips.push_back(turn);
    at(turn).skips.push_back(to);
    const std::int32_t begin = place();
    at(turn).skips.push_back(begin);
    emit(part, begin, turn);
    return;
  }
  for (std::int64_t i = node.least; i < node.most; ++i) {
    at(from).skips.push_back(to);
    const std::int32_t begin = place(), next = place();
    at(from).skips.push_back(begin);
    emit(part, begin, next);
    from = next;
  }
  at(from).skips.push_back(to);
}

void GrammarBuilder::emit_machine(const Node& node, std::int32_t from, std::int32_t to) {
  std::vector<std::int32_t> own(node.states.size());
  for (std::int32_t& state : own) state = place();
  at(from).skips.push_back(own[0]);
  const auto own_of = [&](std::int32_t state) { return own[static_cast<std::size_t>(state)]; };
  for (std::size_t i = 0; i < own.size(); ++i) {
    Grammar::Place& here = at(own[i]);
    for (const auto& edge : node.states[i].edges)
      here.edges.push_back({edge.first, edge.last, own_of(edge.to)});
    for (const auto& call : node.states[i].calls)
      here.calls.push_back({call.rule, own_of(call.back)});
    if (node.states[i].ends) here.skips.push_back(to);
  }
}

// The automaton expands sets (GrammarAutomaton::set_place). The static places, one order of the
// required members and then any others, decide which rules can be reached and end.
void GrammarBuilder::emit_set(const Node& node, std::int32_t from, std::int32_t to) {
  const std::int32_t begin = place(), loop = place();
  at(from).skips.push_back(begin);
  at(begin).set = static_cast<std::int32_t>(sets_.size());
  std::int32_t here = begin;
  for (const Grammar::Set::Member& member : node.members.members) {
    if (!member.required) {
      at(loop).calls.push_back({member.rule, loop});
      continue;
    }
    const std::int32_t next = place();
    at(here).calls.push_back({member.rule, next});
    here = next;
  }
  for (const std::int32_t rule : {node.members.other, node.members.comma}) {
    if (rule >= 0) at(loop).calls.push_back({rule, loop});
  }
  at(here).skips.push_back(loop);
  at(loop).skips.push_back(to);
  sets_.push_back(node.members);
  sets_.back().end = to;
}

void GrammarBuilder::emit_chars(std::span<const CharRange> ranges, std::int32_t from,
                                std::int32_t to) {
  for (const CharRange& range : ranges) {
    // UTF-8 encodes no surrogates, and has a different form for each encoded length.
    constexpr std::array<CharRange, 5> kForms = {
        {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, kLastCharacter}}};
    for (const CharRange& form : kForms) {
      const CharRange part = {std::max(range.first, form.first), std::min(range.last, form.last)};
      if (part.first <= part.last) emit_range(part, from, to);
    }
  }
}

// Adds edges for characters whose UTF-8 forms have the same length: splits the range until all
// bytes after the first one that differs take all values.
void GrammarBuilder::emit_range(CharRange range, std::int32_t from, std::int32_t to) {
  std::vector<CharRange> open = {range};
  while (!open.empty()) {
    CharRange now = open.back();
    open.pop_back();
    bool cut = false;
    for (int bits = 18; bits >= 6 && !cut; bits -= 6) {
      const char32_t low = (char32_t{1} << bits) - 1;
      if ((now.first & ~low) == (now.last & ~low)) continue;
      if ((now.first & low) != 0) {
        open.push_back({(now.first | low) + 1, now.last});
        open.push_back({now.first, now.first | low});
        cut = true;
      } else if ((now.last & low) != low) {
        open.push_back({now.last & ~low, now.last});
        open.push_back({now.first, (now.last & ~low) - 1});
        cut = true;
      }
    }
    if (cut) continue;
    std::string first, last;
    append_utf8(first, now.first);
    append_utf8(last, now.last);
    std::int32_t here = from;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::int32_t next = i + 1 < first.size() ? place() : to;
      at(here).edges.push_back(
          {static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i]), next});
      here = next;
    }
  }
}

// Refuses a rule that can begin with itself, which would be called endlessly. Calls of rules that
// may be empty are followed by what comes after them.
void GrammarBuilder::refuse_left_recursion() {
  std::vector<bool> empty(rules_.size(), false);
  std::vector<std::vector<std::int32_t>> begins(rules_.size());  // rules that a rule begins with
  std::vector<std::vector<std::size_t>> waiting(rules_.size());  // to revisit if it may be empty
  std::vector<std::size_t> seen(places_.size(), 0);
  std::size_t turn = 0;
  std::vector<std::size_t> work(rules_.size());
  std::iota(work.begin(), work.end(), 0);
  while (!work.empty()) {
    const std::size_t r = work.back();
    work.pop_back();
    ++turn;
    begins[r].clear();
    bool may_be_empty = false;
    std::vector<std::int32_t> open = {starts_[r]};
    while (!open.empty()) {
      const std::int32_t p = open.back();
      open.pop_back();
      if (std::exchange(seen[static_cast<std::size_t>(p)], turn) == turn) continue;
      may_be_empty = may_be_empty || at(p).ends;
      open.insert(open.end(), at(p).skips.begin(), at(p).skips.end());
      for (const auto& call : at(p).calls) {
        const auto called = static_cast<std::size_t>(call.rule);
        begins[r].push_back(call.rule);
        if (empty[called]) {
          open.push_back(call.back);
        } else {
          waiting[called].push_back(r);
        }
      }
    }
    if (!may_be_empty || empty[r]) continue;
    empty[r] = true;
    const std::vector<std::size_t> again = std::exchange(waiting[r], {});
    work.insert(work.end(), again.begin(), again.end());
  }
  refuse_rings(begins);
}

void GrammarBuilder::refuse_rings(const std::vector<std::vector<std::int32_t>>& begins) {
  // Depth-first search with an explicit stack instead of recursion.
  enum class Mark : std::uint8_t { fresh, open, done };
  std::vector<Mark> marks(rules_.size(), Mark::fresh);
  for (std::size_t root = 0; root < rules_.size(); ++root) {
    if (marks[root] != Mark::fresh) continue;
    std::vector<std::pair<std::size_t, std::size_t>> path = {{root, 0}};
    marks[root] = Mark::open;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next == begins[rule].size()) {
        marks[rule] = Mark::done;
        path.pop_back();
        continue;
      }
      const auto called = static_cast<std::size_t>(begins[rule][next++]);
      require(marks[called] != Mark::open, source_, ": the rule ", printable(rules_[called].name),
              " begins with itself (left recursion); let it begin with something else");
      if (marks[called] == Mark::done) continue;
      marks[called] = Mark::open;
      path.emplace_back(called, 0);
    }
  }
}

namespace {

using Edge = Grammar::Edge;

// Appends the parts of an edge that remain if only the given bytes are accepted.
void append_parts(std::vector<Edge>& parts, const Edge& edge, const std::bitset<256>& bytes) {
  bool follows = false;  // the previous byte belongs to the last part
  for (std::size_t byte = edge.first; byte <= edge.last; ++byte) {
    const auto now = static_cast<std::uint8_t>(byte);
    if (bytes[byte] && follows) {
      parts.back().last = now;
    } else if (bytes[byte]) {
      parts.push_back({now, now, edge.to});
    }
    follows = bytes[byte];
  }
}

bool takes_only(const Edge& edge, const std::bitset<256>& bytes) {
  for (std::size_t byte = edge.first; byte <= edge.last; ++byte) {
    if (!bytes[byte]) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<const Grammar> Grammar::written_with(std::shared_ptr<const Grammar> grammar,
                                                     const std::bitset<256>& bytes) {
  const bool whole = std::ranges::all_of(grammar->places_, [&](const Place& place) {
    return std::ranges::all_of(place.edges, [&](const Edge& e) { return takes_only(e, bytes); });
  });
  if (whole) return grammar;
  const std::shared_ptr<Grammar> left(new Grammar(*grammar));
  for (Place& place : left->places_) {
    std::vector<Edge> edges;
    for (const Edge& edge : place.edges) append_parts(edges, edge, bytes);
    place.edges = std::move(edges);
  }
  return drop_dead_ends(left->places_, left->starts_, left->root_) ? left : nullptr;
}

}  // namespace leq
