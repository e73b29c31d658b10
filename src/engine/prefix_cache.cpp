#include "engine/prefix_cache.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "format/leq_layout.h"

namespace leq {
namespace {

constexpr std::int64_t kStateInterval = 512;  // least distance; the usual chunk of a prompt
// Least distance in tokens between the marks of later messages, because each mark ends a step.
constexpr std::int64_t kMessageInterval = 512;

// Position of the prompt's last special token; 0 if no special token follows the first token.
std::int64_t last_special(std::span<const Token> prompt, const Tokenizer& tokenizer) {
  std::int64_t last = std::ssize(prompt) - 1;
  while (last > 0 && !tokenizer.token_bytes(prompt[static_cast<std::size_t>(last)]).empty()) --last;
  return last;
}

// The ends of messages: positions of the token at `last` between its first occurrence and `last`.
std::vector<std::int64_t> message_ends(std::span<const Token> prompt, std::int64_t last) {
  std::vector<std::int64_t> ends;
  const Token begins = prompt[static_cast<std::size_t>(last)];
  const auto before = prompt.first(static_cast<std::size_t>(last));
  for (auto at = std::ranges::find(before, begins); at != before.end();) {
    at = std::find(at + 1, before.end(), begins);
    const std::int64_t end = at - before.begin();
    if (end == last) break;
    if (ends.empty() || end - ends.back() >= kMessageInterval) ends.push_back(end);
  }
  return ends;
}

std::uint64_t hash_of(std::span<const Token> tokens) { return checksum(std::as_bytes(tokens)); }

std::int64_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

std::vector<std::int64_t> state_marks(std::span<const Token> prompt, const Tokenizer& tokenizer,
                                      std::int64_t most) {
  std::int64_t last = last_special(prompt, tokenizer), first = 0;
  std::vector<std::int64_t> marks;
  if (last > 0) {
    marks = message_ends(prompt, last);
    if (!marks.empty()) first = marks[0];
  } else {
    last = std::ssize(prompt) - 1;
  }
  if (last <= 0) return {};
  std::int64_t interval = kStateInterval;
  while (last / interval > std::max<std::int64_t>(1, (most - 2) / 2)) interval *= 2;
  for (std::int64_t at = interval; at < last; at += interval) marks.push_back(at);
  std::erase(marks, first);
  std::ranges::sort(marks);
  marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
  const auto others = static_cast<std::size_t>(std::max<std::int64_t>(0, most - 2));
  if (marks.size() > others)
    marks.erase(marks.begin(), marks.end() - static_cast<std::ptrdiff_t>(others));
  if (first > 0) marks.insert(std::ranges::upper_bound(marks, first), first);
  marks.push_back(last);
  return marks;
}

std::int64_t next_mark(std::span<const std::int64_t> marks, std::int64_t fed) {
  const auto found = std::ranges::upper_bound(marks, fed);
  return found == marks.end() ? 0 : *found;
}

PrefixCache::~PrefixCache() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].page >= 0) cache_.release(nodes_[i].page);
    take_state(i);
  }
}

PrefixCache::Match PrefixCache::find(std::span<const Token> tokens, bool use) {
  if (use) ++clock_;
  Match found, with_state;
  std::size_t node = 0;
  const auto take = [&](std::size_t child, std::int64_t count) {
    found.pages.push_back(nodes_[child].page);
    found.tokens += count;
    if (use) nodes_[child].used = clock_;
    found.state = nodes_[child].state;
    const bool whole = count == std::ssize(nodes_[child].tokens);
    if (whole && found.state != FixedStates::kZeros) with_state = found;
  };
  // Considers a state inside the next page, because the text may differ after the state's position.
  const auto branch = [&](std::size_t parent) {
    const std::size_t child = partial_with_state(parent, tokens);
    if (child == 0) return;
    with_state = found;
    with_state.pages.push_back(nodes_[child].page);
    with_state.tokens += std::ssize(nodes_[child].tokens);
    with_state.state = nodes_[child].state;
    if (use) nodes_[child].used = clock_;
  };
  while (std::ssize(tokens) >= kPageTokens) {
    branch(node);
    const std::size_t child = child_of(node, tokens.first(kPageTokens));
    if (child == 0 || nodes_[child].page == kNoPage) break;
    take(child, kPageTokens);
    tokens = tokens.subspan(kPageTokens);
    node = child;
  }
  branch(node);
  std::size_t best = 0;
  std::int64_t most = 0;
  for (const std::size_t child : nodes_[node].children) {
    const std::int64_t common = common_prefix(nodes_[child].tokens, tokens);
    if (common <= most || nodes_[child].page == kNoPage) continue;
    most = common;
    best = child;
  }
  const std::int64_t matched = found.tokens + most;
  if (most > 0 && state_.fixed() == nullptr) take(best, most);
  if (state_.fixed() != nullptr) found = std::move(with_state);
  found.matched = matched;
  cut(found, found.tokens);
  return found;
}

// The node's longest partial page that has a state and holds a prefix of `tokens`; 0: none.
std::size_t PrefixCache::partial_with_state(std::size_t node, std::span<const Token> tokens) const {
  std::size_t best = 0;
  for (const std::size_t child : nodes_[node].children) {
    const std::vector<Token>& own = nodes_[child].tokens;
    const bool kept = nodes_[child].state != FixedStates::kZeros && std::ssize(own) < kPageTokens;
    if (!kept || common_prefix(own, tokens) != std::ssize(own)) continue;
    if (best == 0 || own.size() > nodes_[best].tokens.size()) best = child;
  }
  return best;
}

void PrefixCache::cut(Match& found, std::int64_t tokens) const {
  const std::int64_t all = found.tokens;
  found.tokens = cache_.reach(found.pages, std::min(found.tokens, tokens));
  if (state_.fixed() != nullptr && found.tokens != all) found = {.matched = found.matched};
  found.pages.resize(static_cast<std::size_t>(pages_for(found.tokens)));
}

void PrefixCache::keep(std::int32_t sequence, std::span<const Token> tokens, bool last_too,
                       bool state_too) {
  ensure(std::ssize(tokens) <= cache_.length(sequence), "prefix cache: ", tokens.size(),
         " tokens of sequence ", sequence, ", which holds ", cache_.length(sequence));
  ++clock_;
  std::size_t node = 0;
  std::int64_t index = 0;
  for (; (index + 1) * kPageTokens <= std::ssize(tokens); ++index) {
    const auto part = tokens.subspan(static_cast<std::size_t>(index * kPageTokens), kPageTokens);
    const std::int32_t page = cache_.pages(sequence)[static_cast<std::size_t>(index)];
    std::size_t child = child_of(node, part);
    if (child == 0) {
      child = add(node, part, page);
    } else if (nodes_[child].page != page) {
      if (nodes_[child].page != kNoPage) {
        cache_.replace_page(sequence, index, nodes_[child].page);
      }
      give_page(child, cache_.pages(sequence)[static_cast<std::size_t>(index)]);
    }
    nodes_[child].used = clock_;
    node = child;
  }
  const auto rest = tokens.subspan(static_cast<std::size_t>(index * kPageTokens));
  if (last_too && !rest.empty()) {
    node = keep_partial(node, rest, cache_.pages(sequence)[static_cast<std::size_t>(index)]);
  } else if (!rest.empty()) {
    return;
  }
  if (node != 0 && state_too) give_state(node, sequence, std::ssize(tokens));
}

// Adds a partial page. In models without fixed states a page that is a prefix of another one is not
// kept: returns 0 if a kept page has these tokens and more.
std::size_t PrefixCache::keep_partial(std::size_t parent, std::span<const Token> tokens,
                                      std::int32_t page) {
  for (const std::size_t child : nodes_[parent].children) {
    const Node& known = nodes_[child];
    const std::int64_t common = common_prefix(known.tokens, tokens);
    if (common == std::ssize(tokens) && common == std::ssize(known.tokens)) {
      if (cache_.sees_more(page, known.page)) give_page(child, page);
      return child;
    }
    // If layers have fixed states, nodes are not merged, because each state needs its own node.
    if (state_.fixed() != nullptr) continue;
    if (common == std::ssize(tokens)) return 0;
    if (common == std::ssize(known.tokens)) {  // a partial page: it has no children
      drop(child);
      break;
    }
  }
  const std::size_t added = add(parent, tokens, page);
  nodes_[added].used = clock_;
  return added;
}

std::vector<PrefixCache::KeptState> PrefixCache::states(std::span<const Token> tokens) const {
  std::vector<KeptState> found;
  std::int64_t before = 0;
  for (std::size_t node = 0;; before += kPageTokens) {
    for (const std::size_t child : nodes_[node].children) {
      const std::vector<Token>& own = nodes_[child].tokens;
      const bool begins = common_prefix(own, tokens) == std::ssize(own);
      if (!begins || nodes_[child].state == FixedStates::kZeros) continue;
      found.push_back({before + std::ssize(own), nodes_[child].state});
    }
    if (std::ssize(tokens) < kPageTokens) break;
    node = child_of(node, tokens.first(kPageTokens));
    if (node == 0) break;
    tokens = tokens.subspan(kPageTokens);
  }
  std::ranges::sort(found, {}, &KeptState::position);
  return found;
}

std::vector<std::vector<Token>> PrefixCache::texts() const {
  // A partial page may be kept beside the whole page that the same text filled later.
  const auto is_beginning = [&](std::size_t leaf) {
    return std::ranges::any_of(nodes_[nodes_[leaf].parent].children, [&](std::size_t other) {
      const std::vector<Token>& own = nodes_[leaf].tokens;
      return other != leaf && common_prefix(own, nodes_[other].tokens) == std::ssize(own);
    });
  };
  std::vector<std::size_t> leaves;
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    const bool is_leaf = nodes_[i].page >= 0 && nodes_[i].children.empty();
    if (is_leaf && !is_beginning(i)) leaves.push_back(i);
  }
  std::ranges::stable_sort(leaves, std::ranges::greater(),
                           [&](std::size_t leaf) { return nodes_[leaf].used; });
  std::vector<std::vector<Token>> texts;
  for (const std::size_t leaf : leaves) {
    std::vector<Token>& text = texts.emplace_back();
    for (std::size_t node = leaf; node != 0; node = nodes_[node].parent) {
      text.insert(text.begin(), nodes_[node].tokens.begin(), nodes_[node].tokens.end());
    }
  }
  return texts;
}

std::int64_t PrefixCache::erase(std::span<const Token> tokens) {
  std::vector<std::size_t> path;
  std::int64_t erased = 0;
  for (std::size_t node = 0; std::ssize(tokens) >= kPageTokens;) {
    node = child_of(node, tokens.first(kPageTokens));
    if (node == 0) break;
    path.push_back(node);
    tokens = tokens.subspan(kPageTokens);
  }
  const std::vector<std::size_t> last = nodes_[path.empty() ? 0 : path.back()].children;
  for (const std::size_t child : last) {
    const std::vector<Token>& own = nodes_[child].tokens;
    if (!is_idle(nodes_[child]) || !nodes_[child].children.empty()) continue;
    if (own.size() > tokens.size() || common_prefix(own, tokens) != std::ssize(own)) continue;
    erased += std::ssize(own);
    drop(child);
  }
  while (!path.empty() && nodes_[path.back()].children.empty() && is_idle(nodes_[path.back()])) {
    erased += std::ssize(nodes_[path.back()].tokens);
    drop(path.back());
    path.pop_back();
  }
  return erased;
}

bool PrefixCache::holds(std::int32_t page) const {
  return static_cast<std::size_t>(page) < held_.size() && held_[static_cast<std::size_t>(page)];
}

std::int64_t PrefixCache::idle_pages() const {
  return std::ranges::count_if(nodes_, [&](const Node& node) { return is_idle(node); });
}

void PrefixCache::make_free(std::int64_t pages) {
  while (cache_.free_pages() < pages) {
    std::size_t oldest = 0;  // leaves are evicted first
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      const Node &node = nodes_[i], &best = nodes_[oldest];
      if (!is_idle(node)) continue;
      const bool end = node.children.empty(), best_ends = best.children.empty();
      const bool earlier = end == best_ends ? node.used < best.used : end;
      if (oldest == 0 || earlier) oldest = i;
    }
    if (oldest == 0) return;
    if (!nodes_[oldest].children.empty()) {
      take_page(oldest);
      continue;
    }
    for (std::size_t node = oldest; node != 0 && nodes_[node].children.empty();) {
      const std::size_t parent = nodes_[node].parent;
      drop(node);
      if (nodes_[parent].page != kNoPage) break;
      node = parent;
    }
  }
}

void PrefixCache::give_page(std::size_t node, std::int32_t page) {
  cache_.hold(page);
  take_page(node);
  nodes_[node].page = page;
  held_.resize(static_cast<std::size_t>(cache_.page_count()));
  held_[static_cast<std::size_t>(page)] = true;
}

void PrefixCache::take_page(std::size_t node) {
  const std::int32_t page = nodes_[node].page;
  if (page == kNoPage) return;
  cache_.release(page);
  held_[static_cast<std::size_t>(page)] = false;
  nodes_[node].page = kNoPage;
}

// Stores a copy of the sequence's state at this node, unless the node has a state already.
void PrefixCache::give_state(std::size_t node, std::int32_t sequence, std::int64_t position) {
  FixedStates* fixed = state_.fixed();
  if (fixed == nullptr || nodes_[node].state != FixedStates::kZeros) return;
  if (fixed->position(sequence) != position) return;
  nodes_[node].state = fixed->state(sequence);
  fixed->hold(nodes_[node].state);
}

void PrefixCache::take_state(std::size_t node) {
  const FixedStates::Id state = std::exchange(nodes_[node].state, FixedStates::kZeros);
  if (state != FixedStates::kZeros) state_.fixed()->release(state);
}

void PrefixCache::make_states_free(std::int64_t states) {
  FixedStates* fixed = state_.fixed();
  while (fixed != nullptr && fixed->free_states() < states) {
    std::size_t oldest = 0;
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      if (nodes_[i].state == FixedStates::kZeros) continue;
      if (oldest == 0 || nodes_[i].used < nodes_[oldest].used) oldest = i;
    }
    if (oldest == 0) return;
    take_state(oldest);
  }
}

std::size_t PrefixCache::child_of(std::size_t parent, std::span<const Token> tokens) const {
  const std::uint64_t hash = hash_of(tokens);
  for (const std::size_t child : nodes_[parent].children) {
    const Node& node = nodes_[child];
    if (node.hash == hash && std::ranges::equal(node.tokens, tokens)) return child;
  }
  return 0;
}

std::size_t PrefixCache::add(std::size_t parent, std::span<const Token> tokens, std::int32_t page) {
  std::size_t node = nodes_.size();
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
  } else {
    node = free_nodes_.back();
    free_nodes_.pop_back();
  }
  nodes_[node] = {parent, kNoPage, {tokens.begin(), tokens.end()}, hash_of(tokens), clock_, {}};
  give_page(node, page);
  nodes_[parent].children.push_back(node);
  return node;
}

void PrefixCache::drop(std::size_t node) {
  take_page(node);
  take_state(node);
  std::erase(nodes_[nodes_[node].parent].children, node);
  nodes_[node] = {};
  free_nodes_.push_back(node);
}

}  // namespace leq
