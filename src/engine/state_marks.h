// Positions of a prompt at which the fixed state of a model (Gated DeltaNet) is kept. Texts can
// share pages up to any position, but states only at positions where a state was kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace leq {

inline constexpr std::int64_t kStateInterval = 4096;
// Least distance in tokens between the marks of later messages, because each mark ends a step.
inline constexpr std::int64_t kMessageInterval = 512;

// Ascending positions of a prompt, at most max(most, 2) of them:
// - before the prompt's last special token, which begins the reply of a chat (the next turn's
//   prompt may differ after it, because reasoning is omitted); without a special token, before the
//   prompt's last token, for requests with the same prompt;
// - before the second occurrence of that token, the end of the first message: a system message that
//   other chats share;
// - the last ones, as many as fit, of the ends of later messages and multiples of kStateInterval.
std::vector<std::int64_t> state_marks(std::span<const Token> prompt, const Tokenizer& tokenizer,
                                      std::int64_t most);

// The first mark after `fed`; 0 if there is none.
std::int64_t next_mark(std::span<const std::int64_t> marks, std::int64_t fed);

}  // namespace leq
