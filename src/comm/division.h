// Work that ranks divide among them, and what each has made of its part.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace leq {

// The rank that does each of some pieces of work of these sizes: the largest first, each to who has
// least. The same on all ranks.
std::vector<int> divide_work(std::span<const std::int64_t> sizes, int ranks);

// Bytes of every rank, as many as each likes, in the order of ranks; empty on who receives none.
std::vector<std::vector<std::byte>> gather_bytes(Communicator& ranks,
                                                 const std::vector<std::byte>& own, Receivers to,
                                                 std::string_view site);

// Work in which ranks meet: an error of one ends all, and what is thrown is the first one's. An
// interruption is its own rank's alone.
void together(Communicator& ranks, const std::function<void()>& work);

}  // namespace leq
