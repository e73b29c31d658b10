// Constraints on a reply: --grammar, --json-schema, and the same from files.
#pragma once

#include <memory>
#include <vector>

#include "generate/grammar/grammar.h"
#include "tools/common/options.h"

namespace leq::run {

std::vector<Option> grammar_options();

// Null where none is given. Throws Error naming the flag or the file, and the position in it; and
// where several are given.
std::shared_ptr<const Grammar> read_grammar(const Options& options);

}  // namespace leq::run
