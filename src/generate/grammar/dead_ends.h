// Removes dead ends from an automaton, so that every text that is allowed can be continued to a
// complete one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/grammar/grammar.h"

namespace leq {

// Removes all edges, calls and skips from which no end can be reached. `starts` by rule. False
// where the rule `root` matches no text any more.
bool drop_dead_ends(std::vector<Grammar::Place>& places, std::span<const std::int32_t> starts,
                    std::int32_t root);

}  // namespace leq
