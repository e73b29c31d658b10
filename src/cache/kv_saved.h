// The memory of a sequence as bytes: its pages, f16 copies of pages and fixed states, as the device
// stores them. If several ranks share a model, these are collective calls: the leader has the bytes
// of all ranks, one rank's behind the other's. A single rank exchanges nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/layout.h"
#include "backend/memory.h"
#include "base/slice.h"
#include "cache/kv_pages.h"
#include "ranks/communicator.h"

namespace leq {

// A copy of a page between steps, which all ranks that share a model repeat.
struct PageCopy {
  enum class Of : std::uint8_t { page, f16_copy } of = Of::page;
  std::int32_t from = 0, to = 0;
};
// The pages and f16 copies that are saved or loaded.
struct SequenceTransfer {
  enum class Kind : std::uint8_t { save, load } kind = Kind::save;
  std::vector<std::int32_t> pages, copies;
};
using KvCommand = std::variant<PageCopy, SequenceTransfer>;

// The division of a model's KV heads among ranks.
struct KvRanks {
  Communicator& ranks;
  std::vector<Slice> heads;  // [ranks] heads of each rank; ranks may overlap
};

// Gathers the bytes of all ranks, of the sizes `bytes` [ranks], in the leader's `whole`, which is
// empty on other ranks; and distributes them again. `own` has the size of this rank.
void gather_saved(Communicator& ranks, std::span<const std::size_t> bytes,
                  std::span<const std::byte> own, std::span<std::byte> whole,
                  std::string_view site);
void scatter_saved(Communicator& ranks, std::span<const std::size_t> bytes,
                   std::span<const std::byte> whole, std::span<std::byte> own,
                   std::string_view site);

// One rank's part of the transfers of pages.
class KvTransfer {
 public:
  // `own`: the shape of this rank's pages. All arguments must outlive the object.
  KvTransfer(const KvPages& pages, DeviceMemory& memory, const Layout& layout, const KvShape& own,
             const KvRanks& ranks)
      : pages_(pages), memory_(memory), layout_(layout), shape_(own), ranks_(ranks) {}

  // Bytes of all ranks.
  std::uint64_t bytes(const SequenceTransfer& what) const;
  // For each layer, keys and then values, and for each rank: the pages, then the copies.
  void save(const SequenceTransfer& what, std::span<std::byte> out) const;
  void load(const SequenceTransfer& what, std::span<const std::byte> in) const;
  // Offset in `in` of the first page or copy that has a number, scale or minimum that is not finite
  // and would spread to every later token; the size of `in` if there is none.
  std::size_t first_not_finite(const SequenceTransfer& what, std::span<const std::byte> in) const;

 private:
  // The blocks of memory of one layer's keys or values.
  struct Side {
    std::int64_t layer = 0;
    KvPart part = KvPart::keys;
    KvType type = kUsualKv;
    bool copied = false;
  };
  template <class Visit>
  void each_side(Visit visit) const;
  // [ranks] bytes of one page, or of one f16 copy, on each rank.
  std::vector<std::size_t> block_bytes(const Side& side, bool copy) const;
  std::vector<std::size_t> bytes_of_ranks(const Side& side, const SequenceTransfer& what) const;
  // Calls visit(address) for each page, then for each copy, of this rank.
  template <class Visit>
  void each_block(const Side& side, const SequenceTransfer& what, Visit visit) const;

  const KvPages& pages_;
  DeviceMemory& memory_;
  const Layout& layout_;
  const KvShape& shape_;
  const KvRanks& ranks_;
};

}  // namespace leq
