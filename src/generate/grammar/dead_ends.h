// What leads nowhere in an automaton of places is no way: without it, after any text that is
// allowed there is one that ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/grammar/grammar.h"

namespace leq {

// Takes out all edges, calls and skips that no end can be reached by. `starts` by rule. False where
// no text of the rule `root` is left.
bool drop_dead_ends(std::vector<Grammar::Place>& places, std::span<const std::int32_t> starts,
                    std::int32_t root);

}  // namespace leq
