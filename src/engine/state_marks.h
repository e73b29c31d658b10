// Where in a prompt the fixed state of a model (Gated DeltaNet) is kept. Pages can be shared up to
// any position; of states there is one for each position at which somebody kept it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace leq {

inline constexpr std::int64_t kStateInterval = 4096;

// Ascending positions: each multiple of kStateInterval, and the last one at which other texts are
// likely to go on in another way: before the prompt's last special token, which begins the reply of
// a chat, whose history may leave thoughts out; without special tokens before the last token, as
// the same prompt begins again.
std::vector<std::int64_t> state_marks(std::span<const Token> prompt, const Tokenizer& tokenizer);

// The first of them after `fed`; 0 where there is none.
std::int64_t next_mark(std::span<const std::int64_t> marks, std::int64_t fed);

}  // namespace leq
