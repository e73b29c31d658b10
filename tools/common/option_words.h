// The command-line words of an option, and the known word closest to a misspelled one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/common/options.h"

namespace leq {

// Returns all spellings, short ones first: {"-c", "--ctx-size"}.
std::vector<std::string> option_words(const Option& option);
// Returns words that switch a flag off: {"-no-cnv", "--no-conversation"}; none for other kinds.
std::vector<std::string> negated_words(const Option& option);
// Returns the known word with the smallest edit distance, if it is small enough for a typo.
std::optional<std::string> nearest_word(const std::string& word,
                                        std::span<const std::string> known);

}  // namespace leq
