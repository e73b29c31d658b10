#include "engine/state_marks.h"

#include <algorithm>

namespace leq {

namespace {

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
  for (std::int64_t at = kStateInterval; at < last; at += kStateInterval) marks.push_back(at);
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

}  // namespace leq
