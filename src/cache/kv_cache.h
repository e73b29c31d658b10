// The KV cache: pages of 64 positions, and a page table for each sequence, shared by all layers. It
// alone owns the keys and values that attention reads.
//
// Schemes that quantize whole blocks (KvScheme::blocked) also keep f16 copies of pages: of all that
// sequences still read as f16 or have yet to quantize, and of others until the memory is needed for
// another page. reach() says for which lengths the codes and copies of given pages suffice.
//
// Where every layer has a sliding window, a sequence releases the pages that lie behind all of them
// (and behind kRewind positions more): kNoPage takes their place in the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/layout.h"
#include "backend/memory.h"
#include "cache/kv_copies.h"
#include "cache/kv_pages.h"
#include "cache/kv_transfer.h"

namespace leq {

// What the leader needs to make the caches of other ranks follow.
struct KvLeading {
  KvRanks among;
  std::function<void(const KvCommand&)> send;  // the others, before the next step
};

class KvCache {
 public:
  // Asks for all memory at once. `memory` and its `layout` must outlive the cache.
  KvCache(DeviceMemory& memory, const Layout& layout, const KvShape& shape);

  const KvShape& shape() const { return shape_; }

  std::int64_t length(std::int32_t sequence) const;
  // Whether the last page is partial and shared: it is copied when the sequence grows.
  bool shares_last_page(std::int32_t sequence) const;
  // Upper bound of the pages that a sequence of this length holds while a step appends.
  std::int64_t most_pages(std::int64_t positions) const;
  // Pages that a sequence holds whose prompt has this many positions.
  std::int64_t pages_to_begin(std::int64_t positions) const {
    return pages_for(positions) - first_held(positions);
  }
  // Free pages that append() takes.
  std::int64_t pages_to_append(std::int32_t sequence, std::int64_t count) const;
  // Allocates pages for the next `count` positions of a sequence. Throws Error naming the sizes
  // where no page is free; the cache is unchanged then.
  void append(std::int32_t sequence, std::int64_t count);
  // Commits the appended positions, whose step has been computed; call before the next append().
  void commit();
  // Forgets all positions from `length` on; returns how many are left: `length`, or 0 where f16
  // copies are missing that the next query would read (the sequence is empty then). As many as a
  // step appended and kRewind more are always there.
  [[nodiscard]] std::int64_t truncate(std::int32_t sequence, std::int64_t length);
  // `to` becomes a copy of `from`: pages are shared until one of the two appends to the last.
  void fork(std::int32_t from, std::int32_t to);
  void clear(std::int32_t sequence) { (void)truncate(sequence, 0); }
  // How many of the first `length` positions on these pages a new sequence can reuse.
  std::int64_t reach(std::span<const std::int32_t> pages, std::int64_t length) const;
  // An empty sequence begins with `length` positions on these pages, shared as by fork(). They must
  // reach so far.
  void adopt(std::int32_t sequence, std::span<const std::int32_t> pages, std::int64_t length);
  // The sequence's page at `index` is given up for one that holds the same keys and values, which
  // gets what codes and copies it lacks; where it cannot, nothing happens.
  void replace_page(std::int32_t sequence, std::int64_t index, std::int32_t page);
  // Extends a sequence of whole pages to `length` positions with copies of its own pages, in turn:
  // a deep cache without a long prompt, for measuring speed. Throws Error as append() does, and for
  // a sequence that is empty, ends within a page or is longer.
  void repeat_pages(std::int32_t sequence, std::int64_t length);

  // A sequence as bytes, the same for every device (docs/kv-cache.md).
  std::vector<std::byte> save(std::int32_t sequence) const;
  // The sequence becomes the saved one. Throws Error naming `source` where the bytes are no saved
  // sequence of this shape and these types or hold numbers that are not finite (the cache is
  // unchanged then), or where no page is free (the sequence is empty then).
  void load(std::int32_t sequence, std::span<const std::byte> bytes, std::string_view source);
  // Positions of a saved sequence, by its header alone. Throws Error where it has none.
  static std::int64_t saved_length(std::span<const std::byte> bytes, std::string_view source);

  // pages[position / 64] of a sequence, valid until the next change of it; kNoPage behind windows.
  std::span<const std::int32_t> pages(std::int32_t sequence) const;
  KvLayers layers() const { return {pages_, copies_.table()}; }
  KvLayer layer(std::int64_t layer) const { return layers()[layer]; }

  // Makes this the leader of ranks that hold the other heads: they repeat its page copies, and take
  // part in saving and loading sequences.
  void lead(KvLeading leading) { leading_.emplace(std::move(leading)); }

  // Reference counts: a page is unchanged as long as a sequence or a caller of hold() holds it.
  void hold(std::int32_t page) { ++references_[static_cast<std::size_t>(page)]; }
  void release(std::int32_t page);
  int holders(std::int32_t page) const { return references_[static_cast<std::size_t>(page)]; }
  std::int64_t page_count() const { return pages_.count(); }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }
  const KvResidual& residual() const { return pages_.residual(); }
  // Pages with f16 copies, and how many there may be.
  std::int64_t copied_pages() const { return copies_.taken(); }
  std::int64_t copy_count() const { return copies_.count(); }

  static constexpr std::int64_t kRewind = KvPages::kRewind;
  static constexpr std::int32_t kNoPage = -1;

 private:
  struct Sequence {
    std::vector<std::int32_t> pages;
    std::int64_t length = 0;
    std::int64_t committed = 0;  // positions before the step at work
    std::int64_t passed = 0;     // pages before it were given up
  };
  Sequence& at(std::int32_t sequence);
  const Sequence& at(std::int32_t sequence) const;
  std::int32_t take_page();
  void copy_page(std::int32_t from, std::int32_t to);
  void copy_copies(std::int32_t from, std::int32_t to);
  // Allocates `count` more positions. New pages from position `copied_from` on get f16 copies;
  // those before page `held_from` become kNoPage.
  void grow(std::int32_t sequence, std::int64_t count, std::int64_t copied_from,
            std::int64_t held_from);
  // The first page of the sequence that the query at `position` sees, and that it keeps.
  std::int64_t first_visible(std::int64_t position) const;
  std::int64_t first_held(std::int64_t length) const;
  void release_passed(Sequence& sequence);
  void commit_blocks(Sequence& sequence);
  std::int64_t oldest_kept(const Sequence& sequence) const;
  std::vector<bool> pages_in_use() const;
  void give_copy(std::int32_t page);
  bool codes_reach(std::span<const std::int32_t> pages, std::int64_t length) const;
  bool copies_reach(std::span<const std::int32_t> pages, std::int64_t length) const;
  std::int64_t saved_copies_from(std::int32_t sequence) const;
  SequencePlace place_of(std::int32_t sequence, std::int64_t copies_from) const;
  void transfer(const SequenceTransfer& what,
                const std::function<void(const KvTransfer&)>& work) const;
  std::int64_t all_kv_heads() const;
  bool reaches(std::span<const std::int32_t> pages, std::int64_t length) const;

  std::int32_t page_of(std::int32_t sequence, std::int64_t position) const {
    return pages(sequence)[static_cast<std::size_t>(position / kPageTokens)];
  }

  DeviceMemory& memory_;
  const Layout& layout_;
  KvShape shape_;
  KvPages pages_;
  KvCopies copies_;
  std::optional<KvLeading> leading_;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> free_;        // a stack
  std::vector<std::int32_t> references_;  // [pages] sequences that hold a page
  std::vector<std::uint8_t> quantized_;   // [pages] blocks from its start whose codes are there
};

}  // namespace leq
