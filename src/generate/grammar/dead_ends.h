// Removes dead ends from an automaton, so that every allowed prefix can be continued to a complete
// text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/grammar/grammar.h"

namespace leq {

// Removes all edges, calls and skips from which no end can be reached. `starts`: the first place of
// each rule. Returns false if the rule `root` then matches no text.
bool drop_dead_ends(std::vector<Grammar::Place>& places, std::span<const std::int32_t> starts,
                    std::int32_t root);

}  // namespace leq
