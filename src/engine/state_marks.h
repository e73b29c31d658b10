// Where in a prompt the fixed state of a model (Gated DeltaNet) is kept. Pages can be shared up to
// any position; of states there is one for each position at which somebody kept it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace leq {

inline constexpr std::int64_t kStateInterval = 4096;
// Ends of messages after the first are this far from the one before at least: a step ends at each.
inline constexpr std::int64_t kMessageInterval = 512;

// Ascending positions, at most `most` of them but two:
// - before the prompt's last special token, which begins the reply of a chat, whose history may
//   leave thoughts out; without special tokens before the last token, as the same prompt begins
//   again;
// - before the second place of that token, the end of the first message: of the system message that
//   other chats share;
// - the last of these: before its other places, ends of messages, and multiples of kStateInterval.
std::vector<std::int64_t> state_marks(std::span<const Token> prompt, const Tokenizer& tokenizer,
                                      std::int64_t most);

// The first of them after `fed`; 0 where there is none.
std::int64_t next_mark(std::span<const std::int64_t> marks, std::int64_t fed);

}  // namespace leq
