// Division of work among ranks, and exchange of the results.
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

// Assigns pieces of work of these sizes to ranks: the largest first, each to the rank that has the
// least work so far. The result is the same on all ranks.
std::vector<int> divide_work(std::span<const std::int64_t> sizes, int ranks);

// The slice of `rank` out of `count` items, cut at multiples of `unit`. Empty for some ranks if
// there are fewer units than ranks. The leader's slice is never larger than the others'.
Slice even_share(std::int64_t count, std::int64_t unit, int rank, int ranks);
// This rank's slice of rows that are stored in panels.
Slice own_rows(const Communicator& ranks, std::int64_t rows, std::int64_t panel);

// All-gather: copies every rank's part of `all` to all others; its own part must be in `all`.
void gather_parts(Communicator& ranks, std::span<std::byte> all, std::span<const ByteRange> parts,
                  std::string_view site);

// Memory whose content is valid on one rank and is copied to all others.
struct OwnedRows {
  int owner = 0;
  std::byte* data = nullptr;  // address on this rank
  std::int64_t rows = 1;
  std::size_t bytes = 0;   // bytes per row
  std::size_t stride = 0;  // bytes between rows
};
void gather_owned(Communicator& ranks, std::span<const OwnedRows> blocks, std::string_view site);

// Byte ranges of all ranks' data in a concatenation in rank order. `own` is this rank's size.
std::vector<ByteRange> parts_of_sizes(Communicator& ranks, std::size_t own, std::string_view site);

// Gathers any number of bytes per rank, in rank order. Returns an empty list on non-receivers.
std::vector<std::vector<std::byte>> gather_bytes(Communicator& ranks,
                                                 const std::vector<std::byte>& own, Receivers to,
                                                 std::string_view site);

// All-gathers lists and concatenates them in rank order.
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

// Runs work that contains collective calls. An error on one rank aborts all ranks, and the first
// error is thrown. An interruption affects only its own rank.
void together(Communicator& ranks, const std::function<void()>& work);

}  // namespace leq
