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

}  // namespace

Grammar::Place Grammar::place(std::int32_t index) const {
  const Firsts& own = places_[static_cast<std::size_t>(index)];
  const Firsts& next = places_[static_cast<std::size_t>(index) + 1];
  return {std::span(edges_).subspan(own.edges, next.edges - own.edges),
          std::span(calls_).subspan(own.calls, next.calls - own.calls),
          std::span(skips_).subspan(own.skips, next.skips - own.skips), own.ends, own.set};
}

std::size_t Grammar::bytes() const {
  std::size_t bytes = places_.size() * sizeof(Firsts) + edges_.size() * sizeof(Edge) +
                      calls_.size() * sizeof(Call) + skips_.size() * sizeof(std::int32_t) +
                      starts_.size() * sizeof(std::int32_t);
  for (const Set& set : sets_) bytes += sizeof(Set) + set.members.size() * sizeof(Set::Member);
  return bytes;
}

Grammar::Before Grammar::before() const {
  Before before;
  const auto visit = [&](const auto& pair) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(places()); ++i) {
      const Place here = place(i);
      for (const std::int32_t to : here.skips) pair(i, to);
      for (const auto& edge : here.edges) pair(i, edge.to);
      for (const auto& call : here.calls) {
        pair(i, call.back);
        pair(i, start_of(call.rule));
      }
    }
  };
  auto& firsts = before.firsts;
  auto& places_before = before.places;
  firsts.resize(places_.size());
  visit([&](std::int32_t, std::int32_t to) { ++firsts[static_cast<std::size_t>(to)]; });
  // Each first index begins at the end of its list, and is moved to its beginning as it is filled.
  std::partial_sum(firsts.begin(), firsts.end(), firsts.begin());
  places_before.resize(firsts.back());
  visit([&](std::int32_t from, std::int32_t to) {
    places_before[--firsts[static_cast<std::size_t>(to)]] = from;
  });
  return before;
}

template <class Item, class Keeps>
void Grammar::keep(std::vector<Item>& items, std::uint32_t Firsts::*first, const Keeps& keeps) {
  std::uint32_t kept = 0;
  for (std::size_t i = 0; i + 1 < places_.size(); ++i) {
    const std::uint32_t from = std::exchange(places_[i].*first, kept), to = places_[i + 1].*first;
    for (std::uint32_t k = from; k < to; ++k) {
      if (keeps(items[k])) items[kept++] = items[k];
    }
  }
  places_.back().*first = kept;
  items.resize(kept);
  items.shrink_to_fit();
}

bool Grammar::drop_dead_ends() {
  std::vector<bool> ends(places(), false);
  const auto leads = [&](std::int32_t p) { return ends[static_cast<std::size_t>(p)]; };
  const auto edge_leads = [&](const Edge& edge) { return leads(edge.to); };
  const auto call_leads = [&](const Call& call) {
    return leads(call.back) && leads(start_of(call.rule));
  };
  const Before lists = before();
  std::vector<std::size_t> work;
  for (std::size_t i = 0; i < places(); ++i) {
    if (places_[i].ends) work.push_back(i);
  }
  while (!work.empty()) {
    const std::size_t i = work.back();
    work.pop_back();
    if (ends[i]) continue;
    const Place here = place(static_cast<std::int32_t>(i));
    ends[i] = here.ends || std::ranges::any_of(here.skips, leads) ||
              std::ranges::any_of(here.edges, edge_leads) ||
              std::ranges::any_of(here.calls, call_leads);
    if (!ends[i]) continue;
    const auto from = lists.places.begin();
    work.insert(work.end(), from + lists.firsts[i], from + lists.firsts[i + 1]);
  }
  keep(skips_, &Firsts::skips, leads);
  keep(edges_, &Firsts::edges, edge_leads);
  keep(calls_, &Firsts::calls, call_leads);
  shorten_skips();
  return leads(start_of(root_));
}

// A place from which only one skip leads on is the place that this skip leads to, and a call of a
// rule that is only empty is a skip. Without this a state would walk through every such place
// again.
void Grammar::shorten_skips() {
  enum class Mark : std::uint8_t { fresh, open, done };
  std::vector<Mark> marks(places(), Mark::fresh);
  std::vector<std::int32_t> targets(places());  // a place itself, or where its only skip leads
  std::iota(targets.begin(), targets.end(), 0);
  const auto target = [&](std::int32_t p) {
    while (true) {
      std::int32_t& to = targets[static_cast<std::size_t>(p)];
      if (to == p) return p;
      to = targets[static_cast<std::size_t>(to)];
      p = to;
    }
  };
  const auto is_empty = [&](const Call& call) { return ends(target(start_of(call.rule))); };
  // Calls `skip` with where the place's skips lead, and `call` with its other calls.
  const auto lead_on = [&](std::int32_t p, const auto& skip, const auto& call) {
    for (const std::int32_t to : place(p).skips) skip(target(to));
    for (const Call& one : place(p).calls) {
      if (is_empty(one)) {
        skip(target(one.back));
      } else {
        call(Call{one.rule, target(one.back)});
      }
    }
  };
  // Depth first with an explicit stack, so that the places after a place are shortened before it.
  std::vector<std::int32_t> open;
  for (std::int32_t root = 0; root < static_cast<std::int32_t>(places()); ++root) {
    open.push_back(root);
    while (!open.empty()) {
      const std::int32_t p = open.back();
      Mark& mark = marks[static_cast<std::size_t>(p)];
      const Place here = place(p);
      if (mark == Mark::fresh) {
        mark = Mark::open;
        const auto visit = [&](std::int32_t to) {
          if (marks[static_cast<std::size_t>(to)] == Mark::fresh) open.push_back(to);
        };
        for (const std::int32_t to : here.skips) visit(to);
        for (const Call& call : here.calls) {
          visit(call.back);
          visit(start_of(call.rule));
        }
        continue;
      }
      open.pop_back();
      if (std::exchange(mark, Mark::done) == Mark::done) continue;
      bool is_only_skip = here.edges.empty() && !here.ends && here.set < 0;
      std::int32_t only = p;
      const auto skip = [&](std::int32_t to) {
        is_only_skip = is_only_skip && (to == p || only == p || to == only);
        if (to != p) only = to;
      };
      lead_on(p, skip, [&](const Call&) { is_only_skip = false; });
      if (is_only_skip) targets[static_cast<std::size_t>(p)] = only;
    }
  }
  std::vector<std::int32_t> skips, last(places(), -1);  // last: the place that led there last
  std::vector<Call> calls;
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(places()); ++p) {
    const auto first_skip = static_cast<std::uint32_t>(skips.size());
    const auto first_call = static_cast<std::uint32_t>(calls.size());
    const auto skip = [&](std::int32_t to) {
      if (to != p && std::exchange(last[static_cast<std::size_t>(to)], p) != p) skips.push_back(to);
    };
    lead_on(p, skip, [&](const Call& call) { calls.push_back(call); });
    places_[static_cast<std::size_t>(p)].skips = first_skip;
    places_[static_cast<std::size_t>(p)].calls = first_call;
  }
  places_.back().skips = static_cast<std::uint32_t>(skips.size());
  places_.back().calls = static_cast<std::uint32_t>(calls.size());
  skips_ = std::move(skips);
  calls_ = std::move(calls);
  for (Edge& edge : edges_) edge.to = target(edge.to);
  for (Set& set : sets_) set.end = target(set.end);
  for (std::int32_t& start : starts_) start = target(start);
}

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

GrammarBuilder::GrammarBuilder(std::string_view source, GrammarStop stopped)
    : source_(source), stopped_(std::move(stopped)) {}

void GrammarBuilder::look() const {
  require(!stopped_ || !stopped_(), ErrorKind::interrupted, source_, ": the work was stopped");
}

void GrammarBuilder::count_step() {
  if (++steps_ % kStepsOfALook == 0) look();
}

GrammarBuilder::Expr GrammarBuilder::add(Node node) {
  count_step();
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

GrammarBuilder::Expr GrammarBuilder::words(std::vector<Word> words) {
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return add({.kind = Kind::words, .words = std::move(words)});
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

template <class Item>
std::vector<Item> GrammarBuilder::in_order(std::vector<From<Item>>& items,
                                           std::uint32_t Grammar::Firsts::*first,
                                           Grammar& grammar) {
  auto& places = grammar.places_;
  for (const auto& [place, item] : items) ++(places[static_cast<std::size_t>(place)].*first);
  std::uint32_t end = 0;
  for (auto& place : places) place.*first = end += place.*first;
  std::vector<Item> ordered(items.size());
  for (auto at = items.rbegin(); at != items.rend(); ++at) {
    ordered[--(places[static_cast<std::size_t>(at->place)].*first)] = at->item;
  }
  items = {};
  return ordered;
}

std::shared_ptr<const Grammar> GrammarBuilder::finish(std::int32_t root) {
  for (const Rule& rule : rules_) {
    require(rule.defined, source_, ": the rule ", printable(rule.name), " is not defined");
    starts_.push_back(place());
  }
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const std::int32_t end = place();
    places_[static_cast<std::size_t>(end)].ends = true;
    emit(rules_[i].expression, starts_[i], end);
  }
  std::shared_ptr<Grammar> grammar(new Grammar());
  grammar->places_ = std::move(places_);
  grammar->places_.emplace_back();
  grammar->places_.shrink_to_fit();
  grammar->edges_ = in_order(edges_, &Grammar::Firsts::edges, *grammar);
  grammar->calls_ = in_order(calls_, &Grammar::Firsts::calls, *grammar);
  grammar->skips_ = in_order(skips_, &Grammar::Firsts::skips, *grammar);
  grammar->sets_ = std::move(sets_);
  grammar->starts_ = std::move(starts_);
  grammar->root_ = root;
  refuse_left_recursion(*grammar);
  require(grammar->drop_dead_ends(), source_, ": ",
          why_never_.empty() ? "no text fits" : why_never_);
  return grammar;
}

std::int32_t GrammarBuilder::place() {
  count_step();
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
        edge(from, {byte, byte, next});
        from = next;
      }
      if (node.bytes.empty()) skip(from, to);
      return;
    case Kind::chars:
      return emit_chars(node.ranges, from, to);
    case Kind::sequence:
      for (std::size_t i = 0; i < node.parts.size(); ++i) {
        const std::int32_t next = i + 1 < node.parts.size() ? place() : to;
        emit(node.parts[i], from, next);
        from = next;
      }
      if (node.parts.empty()) skip(from, to);
      return;
    case Kind::choice:
      for (const Expr part : node.parts) {
        // Each part starts at a place of its own, because a part may loop back to its start.
        const std::int32_t own = place();
        skip(from, own);
        emit(part, own, to);
      }
      return;
    case Kind::repeat:
      return emit_repeat(node, from, to);
    case Kind::call:
      call_from(from, {node.rule, to});
      return;
    case Kind::words:
      return emit_words(node, from, to);
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
    skip(from, turn);
    skip(turn, to);
    const std::int32_t begin = place();
    skip(turn, begin);
    emit(part, begin, turn);
    return;
  }
  for (std::int64_t i = node.least; i < node.most; ++i) {
    skip(from, to);
    const std::int32_t begin = place(), next = place();
    skip(from, begin);
    emit(part, begin, next);
    from = next;
  }
  skip(from, to);
}

// The words are sorted, so that each one continues along the places of the previous one.
void GrammarBuilder::emit_words(const Node& node, std::int32_t from, std::int32_t to) {
  std::vector<std::int32_t> path = {from};  // the place after each byte of the previous word
  std::string_view before;
  for (std::size_t w = 0; w < node.words.size(); ++w) {
    const auto& [text, rule] = node.words[w];
    const bool goes_on =
        rule != kNoRule || (w + 1 < node.words.size() && node.words[w + 1].text.starts_with(text));
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    path.resize(common + 1);
    for (std::size_t i = common; i < text.size(); ++i) {
      const std::int32_t next = i + 1 < text.size() || goes_on ? place() : to;
      const auto byte = static_cast<std::uint8_t>(text[i]);
      edge(path.back(), {byte, byte, next});
      path.push_back(next);
    }
    if (rule != kNoRule) {
      call_from(path.back(), {rule, to});
    } else if (path.back() != to) {
      skip(path.back(), to);
    }
    before = text;
  }
}

void GrammarBuilder::emit_machine(const Node& node, std::int32_t from, std::int32_t to) {
  std::vector<std::int32_t> own(node.states.size());
  for (std::int32_t& state : own) state = place();
  skip(from, own[0]);
  const auto own_of = [&](std::int32_t state) { return own[static_cast<std::size_t>(state)]; };
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (const auto& [first, last, next] : node.states[i].edges) {
      edge(own[i], {first, last, own_of(next)});
    }
    for (const auto& [rule, back] : node.states[i].calls) call_from(own[i], {rule, own_of(back)});
    if (node.states[i].ends) skip(own[i], to);
  }
}

// The automaton expands sets (GrammarAutomaton::set_place). The static places, one order of the
// required members and then any others, decide which rules can be reached and end.
void GrammarBuilder::emit_set(const Node& node, std::int32_t from, std::int32_t to) {
  const std::int32_t begin = place(), loop = place();
  skip(from, begin);
  places_[static_cast<std::size_t>(begin)].set = static_cast<std::int32_t>(sets_.size());
  std::int32_t here = begin;
  for (const Grammar::Set::Member& member : node.members.members) {
    if (!member.required) {
      call_from(loop, {member.rule, loop});
      continue;
    }
    const std::int32_t next = place();
    call_from(here, {member.rule, next});
    here = next;
  }
  for (const std::int32_t rule : {node.members.other, node.members.comma}) {
    if (rule >= 0) call_from(loop, {rule, loop});
  }
  skip(here, loop);
  skip(loop, to);
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
      edge(here, {static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i]), next});
      here = next;
    }
  }
}

// Refuses a rule that can begin with itself, which would be called endlessly. Calls of rules that
// may be empty are followed by what comes after them.
void GrammarBuilder::refuse_left_recursion(const Grammar& grammar) {
  struct Visit {
    std::size_t rule;
    std::int32_t place;  // one of the rule's own
  };
  std::vector<bool> empty(rules_.size(), false), seen(grammar.places(), false);
  std::vector<std::vector<std::int32_t>> begins(rules_.size());  // rules that a rule begins with
  std::vector<std::vector<Visit>> waiting(rules_.size());        // to visit if it may be empty
  std::vector<Visit> work;
  for (std::size_t r = 0; r < rules_.size(); ++r) work.push_back({r, grammar.starts_[r]});
  while (!work.empty()) {
    const auto [r, p] = work.back();
    work.pop_back();
    const auto at = static_cast<std::size_t>(p);
    if (seen[at]) continue;
    seen[at] = true;
    count_step();
    const Grammar::Place here = grammar.place(p);
    for (const std::int32_t to : here.skips) work.push_back({r, to});
    for (const auto& call : here.calls) {
      const auto called = static_cast<std::size_t>(call.rule);
      begins[r].push_back(call.rule);
      (empty[called] ? work : waiting[called]).push_back({r, call.back});
    }
    if (!here.ends || empty[r]) continue;
    empty[r] = true;
    const std::vector<Visit> more = std::exchange(waiting[r], {});
    work.insert(work.end(), more.begin(), more.end());
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
  const auto is_whole = [&](const Edge& edge) { return takes_only(edge, bytes); };
  if (std::ranges::all_of(grammar->edges_, is_whole)) return grammar;
  const std::shared_ptr<Grammar> left(new Grammar(*grammar));
  left->edges_.clear();
  for (std::size_t i = 0; i < grammar->places(); ++i) {
    left->places_[i].edges = static_cast<std::uint32_t>(left->edges_.size());
    for (const Edge& edge : grammar->place(static_cast<std::int32_t>(i)).edges) {
      append_parts(left->edges_, edge, bytes);
    }
  }
  left->places_.back().edges = static_cast<std::uint32_t>(left->edges_.size());
  return left->drop_dead_ends() ? left : nullptr;
}

}  // namespace leq
