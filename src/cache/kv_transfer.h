// Transfers between pages and saved sequences. If several ranks each have pages of some KV heads,
// these are collective calls, and only the leader has the complete bytes. A single rank exchanges
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "backend/layout.h"
#include "backend/memory.h"
#include "base/slice.h"
#include "cache/kv_pages.h"
#include "ranks/communicator.h"

namespace leq {

// The pages and f16 copies of a sequence of `length` positions.
struct SequencePlace {
  std::int64_t length = 0;
  std::int64_t copies_from = 0;      // first position whose f16 copies are saved
  std::vector<std::int32_t> pages;   // [pages of length], below 0 before windows
  std::vector<std::int32_t> copies;  // f16 copy of each page, below 0 for none
};

// A copy of a page between steps, which all ranks that share a model repeat.
struct PageCopy {
  enum class Of : std::uint8_t { page, f16_copy } of = Of::page;
  std::int32_t from = 0, to = 0;
};
struct SequenceTransfer {
  enum class Kind : std::uint8_t { save, load } kind = Kind::save;
  SequencePlace place;
};
using KvCommand = std::variant<PageCopy, SequenceTransfer>;

// The division of a model's KV heads among ranks.
struct KvRanks {
  Communicator& ranks;
  std::vector<Slice> heads;  // [ranks] heads of each rank, ascending; ranks may overlap

  std::int64_t all_heads() const;
  // [ranks] the heads that each rank sends in a gather, chosen so that each head is sent once.
  std::vector<Slice> given() const;
};

// One rank's part of the transfers.
class KvTransfer {
 public:
  // `own`: the shape of this rank's pages. All arguments must outlive the object.
  KvTransfer(const KvPages& pages, DeviceMemory& memory, const Layout& layout, const KvShape& own,
             const KvRanks& ranks);

  // Gathers all heads of all layers in the leader's `out`, which is empty on other ranks.
  void save(const SequencePlace& place, std::span<std::byte> out) const;
  // Distributes the leader's `in` to the pages of all ranks; `in` is empty on other ranks.
  void load(const SequencePlace& place, std::span<const std::byte> in) const;

 private:
  const Slice& own_heads() const;

  const KvPages& pages_;
  DeviceMemory& memory_;
  const Layout& layout_;
  const KvShape& shape_;
  const KvRanks& ranks_;
};

}  // namespace leq
