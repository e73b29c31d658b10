// The words that stand for an option on a command line, and the known word nearest to a wrong one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/common/options.h"

namespace leq {

// Every spelling, short ones first: {"-c", "--ctx-size"}.
std::vector<std::string> option_words(const Option& option);
// Words that switch a flag off: {"-no-cnv", "--no-conversation"}; empty for other kinds.
std::vector<std::string> negated_words(const Option& option);
// The known word with the fewest edits to `word`, if they are few enough to be a slip.
std::optional<std::string> nearest_word(const std::string& word,
                                        std::span<const std::string> known);

}  // namespace leq
