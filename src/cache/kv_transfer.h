// Transfers between pages and saved sequences, where each of several ranks has pages of some KV
// heads only: a collective call, of which the leader alone has the whole bytes. A single rank
// exchanges nothing.
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
#include "comm/communicator.h"

namespace leq {

// The pages of a sequence of `length` positions.
struct SequencePlace {
  std::int64_t length = 0;
  std::int64_t copies_from = 0;      // f16 copies of the positions from here on are saved
  std::vector<std::int32_t> pages;   // [pages of length], below 0 behind windows
  std::vector<std::int32_t> copies;  // the f16 copy of each, below 0 for none
};

// A copy of a page outside of steps, which all ranks that share a model repeat.
struct PageCopy {
  enum class Of : std::uint8_t { page, f16_copy } of = Of::page;
  std::int32_t from = 0, to = 0;
};
struct SequenceTransfer {
  enum class Kind : std::uint8_t { save, load } kind = Kind::save;
  SequencePlace place;
};
using KvCommand = std::variant<PageCopy, SequenceTransfer>;

// The ranks among whom the kv heads of a model's cache are divided.
struct KvRanks {
  Communicator& ranks;
  std::vector<Slice> heads;  // [ranks] that each has, ascending; some may be held by several

  std::int64_t all_heads() const;
  // Of each rank those that it gives where all are put together: each head once.
  std::vector<Slice> given() const;
};

// One rank's side.
class KvTransfer {
 public:
  // `own`: the shape of this rank's pages. All must outlive the transfer.
  KvTransfer(const KvPages& pages, DeviceMemory& memory, const Layout& layout, const KvShape& own,
             const KvRanks& ranks);

  // The sequence into the leader's `out`, all heads of all layers; empty elsewhere.
  void save(const SequencePlace& place, std::span<std::byte> out) const;
  // The leader's `in` into the pages of all ranks; empty elsewhere.
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
