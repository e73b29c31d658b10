#include "ranks/communicator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <string>

#include "base/bytes.h"

namespace leq {
namespace {

class OneRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void gather(std::span<const SharedRows>, Receivers, std::string_view) override {}
  void broadcast(std::vector<std::byte>&, std::string_view) override {}
  void barrier(std::string_view) override {}
  Error abort(const Error& error) noexcept override { return error; }
  std::chrono::milliseconds timeout() const override { return {}; }
};

constexpr std::string_view kSite = "the comparison of programs and settings";

void write_text(std::vector<std::byte>& bytes, std::string_view text) {
  const std::uint64_t size = text.size();
  const auto length = std::as_bytes(std::span(&size, 1));
  bytes.insert(bytes.end(), length.begin(), length.end());
  const auto letters = as_bytes(text);
  bytes.insert(bytes.end(), letters.begin(), letters.end());
}

std::string read_text(ByteReader& reader) {
  const auto size = reader.read<std::uint64_t>("a length");
  return std::string(as_text(reader.take(size, "a text")));
}

// The first difference; empty if there is none.
std::string difference(std::span<const std::byte> leaders, const std::vector<RankFact>& facts) {
  ByteReader reader(leaders, kSite);
  for (const RankFact& fact : facts) {
    const std::string name = reader.left() == 0 ? "" : read_text(reader);
    if (name != fact.name) return "it is another program than the leader: its version differs";
    const std::string value = read_text(reader);
    if (value != fact.value) return fact.name + ": " + fact.value + ", the leader has " + value;
  }
  return reader.left() == 0 ? "" : "it is another program than the leader: its version differs";
}

}  // namespace

Error rank_error(const Communicator& ranks, const Error& error) {
  std::string text =
      "rank " + std::to_string(ranks.rank()) + " of " + std::to_string(ranks.size()) + ": ";
  if (ranks.step() > 0) text += "step " + std::to_string(ranks.step()) + ": ";
  return Error(text + error.marked(), error.kind());
}

Communicator& one_rank() {
  static OneRank rank;
  return rank;
}

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

Slice even_share(std::int64_t count, std::int64_t unit, int rank, int ranks) {
  const std::int64_t units = (count + unit - 1) / unit;
  return {std::min(count, units * rank / ranks * unit),
          std::min(count, units * (rank + 1) / ranks * unit)};
}

Slice own_rows(const Communicator& ranks, std::int64_t rows, std::int64_t panel) {
  return even_share(rows, panel, ranks.rank(), ranks.size());
}

void gather_parts(Communicator& ranks, std::span<std::byte> all, std::span<const ByteRange> parts,
                  std::string_view site) {
  const std::byte* own = all.data() + parts[static_cast<std::size_t>(ranks.rank())].first;
  const SharedRows row = {1, parts, own, 0, all.data(), parts.back().last};
  ranks.gather({&row, 1}, Receivers::all, site);
}

void gather_owned(Communicator& ranks, std::span<const OwnedRows> blocks, std::string_view site) {
  const auto count = static_cast<std::size_t>(ranks.size());
  std::vector<ByteRange> parts(blocks.size() * count);
  std::vector<SharedRows> shared;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const OwnedRows& block = blocks[i];
    const std::span own = std::span(parts).subspan(i * count, count);
    for (std::size_t rank = 0; rank < count; ++rank) {
      const bool later = rank > static_cast<std::size_t>(block.owner);
      own[rank] = {later ? block.bytes : 0, static_cast<int>(rank) < block.owner ? 0 : block.bytes};
    }
    shared.push_back({block.rows, own, block.data, block.stride, block.data, block.stride});
  }
  ranks.gather(shared, Receivers::all, site);
}

std::vector<ByteRange> parts_of_sizes(Communicator& ranks, std::size_t own, std::string_view site) {
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(ranks.size()));
  std::vector<ByteRange> parts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    parts.push_back({rank * sizeof sizes[0], (rank + 1) * sizeof sizes[0]});
  }
  sizes[static_cast<std::size_t>(ranks.rank())] = own;
  gather_parts(ranks, std::as_writable_bytes(std::span(sizes)), parts, site);
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    parts[rank] = {at, at + static_cast<std::size_t>(sizes[rank])};
    at = parts[rank].last;
  }
  return parts;
}

std::vector<std::vector<std::byte>> gather_bytes(Communicator& ranks,
                                                 const std::vector<std::byte>& own, Receivers to,
                                                 std::string_view site) {
  if (ranks.size() == 1) return {own};
  const std::vector<ByteRange> parts = parts_of_sizes(ranks, own.size(), site);
  const bool receives = to == Receivers::all || ranks.leads();
  std::vector<std::byte> all(receives ? parts.back().last : 0);
  const auto rank = static_cast<std::size_t>(ranks.rank());
  if (receives) {
    std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(parts[rank].first));
  }
  const SharedRows row = {1, parts, own.data(), 0, all.data(), parts.back().last};
  ranks.gather({&row, 1}, to, site);
  std::vector<std::vector<std::byte>> each(parts.size());
  if (!receives) return each;
  for (std::size_t from = 0; from < each.size(); ++from) {
    each[from].assign(all.begin() + static_cast<std::ptrdiff_t>(parts[from].first),
                      all.begin() + static_cast<std::ptrdiff_t>(parts[from].last));
  }
  return each;
}

void gather_to_leader(Communicator& ranks, std::span<const std::size_t> bytes,
                      std::span<const std::byte> own, std::span<std::byte> whole,
                      std::string_view site) {
  std::vector<ByteRange> parts;
  for (const std::size_t size : bytes) {
    const std::size_t first = parts.empty() ? 0 : parts.back().last;
    parts.push_back({first, first + size});
  }
  std::byte* const all = ranks.leads() ? whole.data() : nullptr;
  if (all != nullptr) std::ranges::copy(own, all);  // the leader is rank 0
  const SharedRows rows = {1, parts, own.data(), 0, all, parts.back().last};
  ranks.gather({&rows, 1}, Receivers::leader, site);
}

void scatter_from_leader(Communicator& ranks, std::span<const std::size_t> bytes,
                         std::span<const std::byte> whole, std::span<std::byte> own,
                         std::string_view site) {
  std::vector<std::byte> all(whole.begin(), whole.end());
  ranks.broadcast(all, site);
  const auto first = bytes.begin() + ranks.rank();
  ensure(all.size() == std::reduce(bytes.begin(), bytes.end()), site, ": ", all.size(), " bytes");
  if (own.empty()) return;
  std::memcpy(own.data(), all.data() + std::reduce(bytes.begin(), first), own.size());
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

void require_agreement(Communicator& ranks, const std::vector<RankFact>& facts) {
  std::vector<std::byte> bytes;
  for (const RankFact& fact : facts) {
    write_text(bytes, fact.name);
    write_text(bytes, fact.value);
  }
  ranks.broadcast(bytes, kSite);
  const std::string differs = ranks.leads() ? "" : difference(bytes, facts);
  if (!differs.empty())
    throw ranks.abort(rank_error(ranks, Error(differs, ErrorKind::bad_setting)));
  ranks.barrier(kSite);
}

}  // namespace leq
