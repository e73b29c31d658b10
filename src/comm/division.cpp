#include "comm/division.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace leq {
namespace {

// One row of all ranks' parts; this rank's is laid where it belongs.
std::vector<std::byte> gather_row(Communicator& ranks, std::span<const std::byte> own,
                                  const std::vector<ByteRange>& parts, Receivers to,
                                  std::string_view site) {
  const bool receives = to == Receivers::all || ranks.leads();
  std::vector<std::byte> all(receives ? parts.back().last : 0);
  if (receives) {
    const ByteRange part = parts[static_cast<std::size_t>(ranks.rank())];
    std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(part.first));
  }
  const SharedRows row = {1, parts, own.data(), 0, all.data(), parts.back().last};
  ranks.gather({&row, 1}, to, site);
  return all;
}

}  // namespace

std::vector<int> divide_work(std::span<const std::int64_t> sizes, int ranks) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owners(sizes.size());
  for (const std::size_t piece : order) {
    const auto least = std::ranges::min_element(loads);
    *least += sizes[piece];
    owners[piece] = static_cast<int>(least - loads.begin());
  }
  return owners;
}

std::vector<std::vector<std::byte>> gather_bytes(Communicator& ranks,
                                                 const std::vector<std::byte>& own, Receivers to,
                                                 std::string_view site) {
  if (ranks.size() == 1) return {own};
  const auto count = static_cast<std::size_t>(ranks.size());
  const std::uint64_t own_size = own.size();
  std::vector<ByteRange> parts;
  for (std::size_t rank = 0; rank < count; ++rank) {
    parts.push_back({rank * sizeof own_size, (rank + 1) * sizeof own_size});
  }
  const auto size_bytes =
      gather_row(ranks, std::as_bytes(std::span(&own_size, 1)), parts, Receivers::all, site);
  std::vector<std::uint64_t> sizes(count);
  std::memcpy(sizes.data(), size_bytes.data(), size_bytes.size());
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < count; ++rank) {
    parts[rank] = {at, at + static_cast<std::size_t>(sizes[rank])};
    at = parts[rank].last;
  }
  const std::vector<std::byte> all = gather_row(ranks, own, parts, to, site);
  std::vector<std::vector<std::byte>> each(count);
  if (all.empty()) return each;
  for (std::size_t rank = 0; rank < count; ++rank) {
    each[rank].assign(all.begin() + static_cast<std::ptrdiff_t>(parts[rank].first),
                      all.begin() + static_cast<std::ptrdiff_t>(parts[rank].last));
  }
  return each;
}

void together(Communicator& ranks, const std::function<void()>& work) {
  if (ranks.size() == 1) return work();
  try {
    work();
  } catch (const Error& error) {
    const Error first = ranks.abort(rank_error(ranks, error));
    if (error.kind() == ErrorKind::interrupted && ranks.leads()) throw;
    throw first;
  } catch (const std::bad_alloc&) {
    throw ranks.abort(rank_error(ranks, Error("out of memory", ErrorKind::no_memory)));
  }
}

}  // namespace leq
