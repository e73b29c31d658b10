#include "engine/state_marks.h"

#include <algorithm>

namespace leq {

std::vector<std::int64_t> state_marks(std::span<const Token> prompt, const Tokenizer& tokenizer) {
  std::int64_t last = std::ssize(prompt) - 1;
  while (last > 0 && !tokenizer.token_bytes(prompt[static_cast<std::size_t>(last)]).empty()) --last;
  if (last <= 0) last = std::ssize(prompt) - 1;
  std::vector<std::int64_t> marks;
  for (std::int64_t at = kStateInterval; at < last; at += kStateInterval) marks.push_back(at);
  if (last > 0) marks.push_back(last);
  return marks;
}

std::int64_t next_mark(std::span<const std::int64_t> marks, std::int64_t fed) {
  const auto found = std::ranges::upper_bound(marks, fed);
  return found == marks.end() ? 0 : *found;
}

}  // namespace leq
