// Constraints on a reply: --grammar, --json-schema, and the options that read these from files.
#pragma once

#include <memory>
#include <vector>

#include "grammar/grammar.h"
#include "tools/common/options.h"

namespace leq::run {

std::vector<Option> grammar_options();

// Returns null if no constraint is given. Throws Error naming the flag or the file and the position
// in it, or if several constraints are given.
std::shared_ptr<const Grammar> read_grammar(const Options& options);

}  // namespace leq::run
