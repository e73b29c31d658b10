// Past keys and values: pages of 64 positions, a page table for each sequence, shared by all
// layers. The only owner of what attention reads back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/layout.h"
#include "backend/memory.h"

namespace leq {

struct KvShape {
  std::int64_t layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::int64_t positions = 0;  // in all sequences together
  int sequences = 1;
};

class KvCache {
 public:
  // Asks for all memory at once. `memory` and its `layout` must outlive the cache.
  KvCache(DeviceMemory& memory, const Layout& layout, const KvShape& shape);

  const KvShape& shape() const { return shape_; }

  std::int64_t length(std::int32_t sequence) const;
  // Whether its last page is partial and somebody else holds it: it is copied when it grows.
  bool shares_last_page(std::int32_t sequence) const;
  // Free pages that append() takes.
  std::int64_t pages_to_append(std::int32_t sequence, std::int64_t count) const;
  // Makes room for the next `count` positions of a sequence. Throws Error naming the sizes where no
  // page is free; the cache is unchanged then.
  void append(std::int32_t sequence, std::int64_t count);
  // Forgets all positions from `length` on.
  void truncate(std::int32_t sequence, std::int64_t length);
  // `to` becomes a copy of `from`: pages are shared until one of the two appends to the last.
  void fork(std::int32_t from, std::int32_t to);
  void clear(std::int32_t sequence) { truncate(sequence, 0); }
  // An empty sequence begins with `length` positions on these pages, shared as by fork().
  void adopt(std::int32_t sequence, std::span<const std::int32_t> pages, std::int64_t length);
  // The sequence's page at `index` is given up for one that holds the same keys and values.
  void replace_page(std::int32_t sequence, std::int64_t index, std::int32_t page);
  // Extends a sequence of whole pages to `length` positions with copies of its own pages, in turn:
  // a deep cache without a long prompt, for measuring speed. Throws Error as append() does, and for
  // a sequence that is empty, ends within a page or is longer.
  void repeat_pages(std::int32_t sequence, std::int64_t length);

  // A sequence as bytes that no device's layout shows in: a header with shape, types and length;
  // then for each layer, keys and values, and kv head: numbers [length][d], for int8 f16 scales
  // [length] and f16 minima [length].
  std::vector<std::byte> save(std::int32_t sequence) const;
  // The sequence becomes the saved one. Throws Error naming `source` where the bytes are no saved
  // sequence of this shape and these types or hold numbers that are not finite (the cache is
  // unchanged then), or where no page is free (the sequence is empty then).
  void load(std::int32_t sequence, std::span<const std::byte> bytes, std::string_view source);

  // pages[position / 64] of a sequence, valid until the next change of it.
  std::span<const std::int32_t> pages(std::int32_t sequence) const;
  KvLayer layer(std::int64_t layer) const;

  // A page stays what it is for as long as somebody holds it: a sequence, or who called hold().
  void hold(std::int32_t page) { ++references_[static_cast<std::size_t>(page)]; }
  void release(std::int32_t page);
  int holders(std::int32_t page) const { return references_[static_cast<std::size_t>(page)]; }
  std::int64_t page_count() const { return page_count_; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

 private:
  struct Sequence {
    std::vector<std::int32_t> pages;
    std::int64_t length = 0;
  };
  Sequence& at(std::int32_t sequence);
  const Sequence& at(std::int32_t sequence) const;
  std::int32_t take_page();
  void copy_page(std::int32_t from, std::int32_t to);

  std::int32_t page_of(std::int32_t sequence, std::int64_t position) const {
    return pages(sequence)[static_cast<std::size_t>(position / kPageTokens)];
  }
  std::byte* page_at(std::int64_t layer, KvPart part, std::int32_t page) const;
  KvType type(KvPart part) const {
    return part == KvPart::keys ? shape_.key_type : shape_.value_type;
  }
  std::size_t page_bytes(KvPart part) const {
    return part == KvPart::keys ? key_page_bytes_ : value_page_bytes_;
  }

  DeviceMemory& memory_;
  const Layout& layout_;
  KvShape shape_;
  std::size_t key_page_bytes_ = 0;
  std::size_t value_page_bytes_ = 0;
  std::int64_t page_count_ = 0;
  Buffer keys_;    // [layers][pages][key_page_bytes]
  Buffer values_;  // [layers][pages][value_page_bytes]
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> free_;        // a stack
  std::vector<std::int32_t> references_;  // [pages] sequences that hold a page
};

}  // namespace leq
