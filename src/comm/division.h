// Work that ranks divide among them, and what each has made of its part.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/slice.h"
#include "comm/communicator.h"

namespace leq {

// The rank that does each of some pieces of work of these sizes: the largest first, each to who has
// least. The same on all ranks.
std::vector<int> divide_work(std::span<const std::int64_t> sizes, int ranks);

// The share of `rank` of `count` things that are cut at multiples of `unit`; empty for some where
// there are fewer units than ranks. The leader never has more than others.
Slice even_share(std::int64_t count, std::int64_t unit, int rank, int ranks);
// This rank's of rows in panels.
Slice own_rows(const Communicator& ranks, std::int64_t rows, std::int64_t panel);

// Every rank's part of `all` into that of all others; this rank's is there already.
void gather_parts(Communicator& ranks, std::span<std::byte> all, std::span<const ByteRange> parts,
                  std::string_view site);

// Memory that one rank has right and all are to have.
struct OwnedRows {
  int owner = 0;
  std::byte* data = nullptr;  // of each rank
  std::int64_t rows = 1;
  std::size_t bytes = 0;   // of a row
  std::size_t stride = 0;  // from row to row
};
void gather_owned(Communicator& ranks, std::span<const OwnedRows> blocks, std::string_view site);

// Where the bytes of each rank lie that come one after the other, `own` of this one.
std::vector<ByteRange> parts_of_sizes(Communicator& ranks, std::size_t own, std::string_view site);

// Bytes of every rank, as many as each likes, in the order of ranks; empty on who receives none.
std::vector<std::vector<std::byte>> gather_bytes(Communicator& ranks,
                                                 const std::vector<std::byte>& own, Receivers to,
                                                 std::string_view site);

// The lists of all ranks as one, in their order, on every rank.
template <class Number>
std::vector<Number> join_lists(Communicator& ranks, std::vector<Number> own,
                               std::string_view site) {
  static_assert(std::is_trivially_copyable_v<Number>);
  if (ranks.size() == 1) return own;
  const std::vector<ByteRange> parts = parts_of_sizes(ranks, own.size() * sizeof(Number), site);
  std::vector<Number> all(parts.back().last / sizeof(Number));
  const auto first = parts[static_cast<std::size_t>(ranks.rank())].first / sizeof(Number);
  std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(first));
  gather_parts(ranks, std::as_writable_bytes(std::span(all)), parts, site);
  return all;
}

// Work in which ranks meet: an error of one ends all, and what is thrown is the first one's. An
// interruption is its own rank's alone.
void together(Communicator& ranks, const std::function<void()>& work);

}  // namespace leq
