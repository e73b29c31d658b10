// The KV cache: keys and values in pages of 64 positions, whose numbers all layers of a sequence
// share. Layers with a sliding window have a smaller memory of frames for the pages in the window.
// KvPages is the memory of one rank; KvCache assigns its pages to sequences. If ranks share a
// model, each rank has pages for its own KV heads, with the same page numbers as the leader's
// cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "backend/layout.h"
#include "backend/memory.h"
#include "base/slice.h"
#include "ranks/communicator.h"

namespace leq {

struct KvShape {
  std::int64_t layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::int64_t positions = 0;  // total of all sequences
  int sequences = 1;
  std::optional<KvResidual> residual = {};  // nullopt: the default of the types
  std::int64_t batch_tokens = 512;          // most positions that one step appends
  // [layers]; empty: key_type and value_type in all layers
  std::vector<KvType> layer_key_types = {}, layer_value_types = {};
  std::vector<KvHeads> layer_heads = {};  // [layers]; empty: kv_heads and head_dim in all layers
  std::uint32_t key_centre_check = 0;     // checksum of the key centres, for saved sequences
  // Number of newest positions that a query sees in layers with a window, the largest of them; 0:
  // no layer has one.
  std::int64_t window = 0;
  std::vector<bool> layer_windowed = {};  // [layers]; empty: all layers have one or none has

  KvType type(std::int64_t layer, KvPart part) const;
  KvHeads heads(std::int64_t layer) const;
  bool windowed(std::int64_t layer) const {
    return window > 0 &&
           (layer_windowed.empty() || layer_windowed[static_cast<std::size_t>(layer)]);
  }
};

// A copy of a page between steps, which all ranks that share a model repeat.
struct PageCopy {
  enum class Of : std::uint8_t { page, frame, f16_copy } of = Of::page;
  std::int32_t from = 0, to = 0;
};
// The pages, frames and f16 copies that are saved or loaded; frames of -1 are not loaded.
struct SequenceTransfer {
  enum class Kind : std::uint8_t { save, load } kind = Kind::save;
  std::vector<std::int32_t> pages, frames, copies;
};
using KvCommand = std::variant<PageCopy, SequenceTransfer>;

// The division of a model's KV heads among ranks.
struct KvRanks {
  Communicator& ranks;
  std::vector<std::vector<KvHeads>> heads;  // [ranks][layers] of each rank; ranks may overlap
};

class KvPages {
 public:
  // Allocates all memory at once. `memory` and its `layout` must outlive the pages.
  KvPages(DeviceMemory& memory, const Layout& layout, const KvShape& shape);

  const KvShape& shape() const { return shape_; }  // of this rank
  const KvResidual& residual() const { return residual_; }
  std::int64_t count() const { return count_; }
  std::int64_t frame_count() const { return frame_count_; }
  std::int64_t copy_count() const { return copy_count_; }
  std::string_view layout_name() const { return layout_.kv_layout(); }

  // `copies`, `frames`: [pages] the f16 copy and the frame of each page, -1 for none; the view
  // refers to these tables.
  KvLayer layer(std::int64_t layer, std::span<const std::int32_t> copies,
                std::span<const std::int32_t> frames) const;
  // Copies a page or frame in all layers that have it, or the f16 copy of a page in all layers.
  void copy(const PageCopy& what);

  // Pages and copies as bytes, as the device stores them: for each layer, keys and then values, for
  // each rank: the pages or frames, then the copies. save() and load() are collective calls of
  // `ranks`; only the leader has the bytes, and a single rank exchanges nothing.
  std::uint64_t saved_bytes(const SequenceTransfer& what, const KvRanks& ranks) const;
  void save(const SequenceTransfer& what, const KvRanks& ranks, std::span<std::byte> out) const;
  void load(const SequenceTransfer& what, const KvRanks& ranks,
            std::span<const std::byte> in) const;
  // Offset in `in` of the first page or copy that has a number, scale or minimum that is not finite
  // and would spread to every later token; the size of `in` if there is none.
  std::size_t first_not_finite(const SequenceTransfer& what, const KvRanks& ranks,
                               std::span<const std::byte> in) const;

  // Number of positions by which a sequence may be truncated.
  static constexpr std::int64_t kRewind = 512;

 private:
  // The keys or values of one layer.
  struct Side {
    KvPart part = KvPart::keys;
    KvType type = kUsualKv;
    std::size_t layer = 0;
    std::size_t page_bytes = 0, pages_at = 0;
    bool in_frames = false, copied = false;
    std::size_t copy_page_bytes = 0, copies_at = 0;
  };
  std::byte* page_at(const Side& side, std::int32_t page) const;
  std::byte* copy_at(const Side& side, std::int32_t copy) const;
  // [ranks] bytes of one page, or of one f16 copy, on each rank; and of all pages and copies.
  std::vector<std::size_t> block_bytes(const Side& side, bool copy, const KvRanks& ranks) const;
  std::vector<std::size_t> bytes_of_ranks(const Side& side, const SequenceTransfer& what,
                                          const KvRanks& ranks) const;
  // Calls visit(address, bytes) for each page or frame (null: no frame), then for each copy, of
  // this rank.
  static const std::vector<std::int32_t>& places(const Side& side, const SequenceTransfer& what) {
    return side.in_frames ? what.frames : what.pages;
  }
  template <class Visit>
  void each_block(const Side& side, const SequenceTransfer& what, Visit visit) const;

  DeviceMemory& memory_;
  const Layout& layout_;
  KvShape shape_;
  KvResidual residual_;
  std::int64_t count_, frame_count_, copy_count_;
  std::vector<Side> sides_;  // [layers][keys, values]
  Buffer keys_;              // keys of each layer [pages or frames][page bytes]
  Buffer values_;
  Buffer copied_;  // [sides with copies][copies][copy page bytes]
};

// The keys and values of all layers, for a step.
struct KvLayers {
  const KvPages& pages;
  std::span<const std::int32_t> copies, frames;

  KvLayer operator[](std::int64_t layer) const { return pages.layer(layer, copies, frames); }
};

// Assigns the places of a small pool to pages: f16 copies, or frames of layers with a window.
// Places are evicted from pages: first from pages that have left the window of an active sequence,
// then from the least recently used.
class KvPlaces {
 public:
  KvPlaces() = default;
  KvPlaces(std::int64_t pages, std::int64_t count)
      : of_page_(static_cast<std::size_t>(pages), -1),
        used_(static_cast<std::size_t>(pages), 0),
        count_(count) {
    for (std::int64_t place = count; place-- > 0;)
      free_.push_back(static_cast<std::int32_t>(place));
  }

  std::int64_t count() const { return count_; }
  bool has(std::int32_t page) const { return of(page) >= 0; }
  std::int32_t of(std::int32_t page) const { return of_page_[static_cast<std::size_t>(page)]; }
  // [pages] index of each page's place; -1: the page has none.
  std::span<const std::int32_t> table() const { return of_page_; }

  bool any_free() const { return !free_.empty(); }
  // Makes a place free by evicting one from a page that is not in use, if none is free. Returns
  // false if there is none.
  bool make_free(const std::function<std::vector<bool>()>& pages_in_use) {
    if (any_free()) return true;
    const std::vector<bool> in_use = pages_in_use();
    std::size_t oldest = of_page_.size();
    for (std::size_t page = 0; page < of_page_.size(); ++page) {
      if (of_page_[page] < 0 || in_use[page]) continue;
      if (oldest == of_page_.size() || used_[page] < used_[oldest]) oldest = page;
    }
    if (oldest == of_page_.size()) return false;
    drop(static_cast<std::int32_t>(oldest));
    return true;
  }
  void give(std::int32_t page) {
    of_page_[static_cast<std::size_t>(page)] = free_.back();
    free_.pop_back();
    touch(page);
  }
  void drop(std::int32_t page) {
    if (of_page_.empty() || !has(page)) return;
    free_.push_back(of(page));
    of_page_[static_cast<std::size_t>(page)] = -1;
  }
  void move(std::int32_t from, std::int32_t to) {
    of_page_[static_cast<std::size_t>(to)] = of(from);
    of_page_[static_cast<std::size_t>(from)] = -1;
    touch(to);
  }
  void touch(std::int32_t page) { used_[static_cast<std::size_t>(page)] = kWanted | ++clock_; }
  // Marks a page that has left a window.
  void pass(std::int32_t page) { used_[static_cast<std::size_t>(page)] &= ~kWanted; }

 private:
  static constexpr std::uint64_t kWanted = std::uint64_t{1} << 63;
  std::vector<std::int32_t> of_page_;
  std::vector<std::uint64_t> used_;  // clock of the last use, and kWanted until pass()
  std::vector<std::int32_t> free_;   // stack of free places
  std::int64_t count_ = 0;
  std::uint64_t clock_ = 0;
};

// Callbacks by which the leader makes the caches of other ranks follow.
struct KvLeading {
  KvRanks among;
  std::function<void(const KvCommand&)> send;  // sends to other ranks before the next step
};

// The KV cache: pages of 64 positions, and for each sequence a page table that all layers share. It
// owns all keys and values that attention reads.
//
// Schemes that quantize whole blocks (KvScheme::blocked) also keep f16 copies: of all pages that
// sequences still read as f16 or have not quantized yet, and of other pages until the memory of the
// copies is needed. reach() returns the length for which codes and copies of pages are sufficient.
//
// In layers with a sliding window a page has a frame while a sequence can see it or may be
// truncated by kRewind positions to see it, and after that until the frame is needed.
class KvCache {
 public:
  // Arguments as of KvPages.
  KvCache(DeviceMemory& memory, const Layout& layout, const KvShape& shape);

  const KvShape& shape() const { return pages_.shape(); }

  std::int64_t length(std::int32_t sequence) const;
  // Whether the last page is partial and shared; it is then copied before the sequence grows.
  bool shares_last_page(std::int32_t sequence) const;
  // Number of free pages that append() would take.
  std::int64_t pages_to_append(std::int32_t sequence, std::int64_t count) const;
  // Allocates pages for the next `count` positions of a sequence. Throws Error naming the sizes if
  // too few pages are free; the cache is then unchanged.
  void append(std::int32_t sequence, std::int64_t count);
  // Commits appended positions whose step has been computed. To be called before the next append().
  void commit();
  // Removes all positions from `length` on. Returns the remaining length: `length`, or 0 (an empty
  // sequence) if f16 copies or frames that the next query would read are missing. They are always
  // present for up to as many positions as a step appended, and kRewind more.
  [[nodiscard]] std::int64_t truncate(std::int32_t sequence, std::int64_t length);
  // Keeps the frames of the window at the sequence's end longer than others that it passes, because
  // later texts may branch from there. Each call replaces the last one.
  void keep_window(std::int32_t sequence);
  // Makes `to` a copy of `from`. Pages are shared until one of the two appends to the last page.
  void fork(std::int32_t from, std::int32_t to);
  void clear(std::int32_t sequence) { (void)truncate(sequence, 0); }
  // Number of the first `length` positions on these pages that a new sequence can reuse.
  std::int64_t reach(std::span<const std::int32_t> pages, std::int64_t length) const;
  // Makes an empty sequence begin with `length` positions on these pages, which are shared as by
  // fork(). reach() of these pages must be `length`.
  void adopt(std::int32_t sequence, std::span<const std::int32_t> pages, std::int64_t length);
  // Whether `page` has keys and values of the layers with windows that `other` lacks.
  bool sees_more(std::int32_t page, std::int32_t other) const {
    return shape().window > 0 && frames_.has(page) && !frames_.has(other);
  }
  // Replaces the sequence's page at `index` by `page`, which has the same keys and values and
  // lacks none (sees_more). Codes and f16 copies that `page` lacks are moved to it; if that is
  // impossible, nothing is changed.
  void replace_page(std::int32_t sequence, std::int64_t index, std::int32_t page);
  // Extends a sequence of whole pages to `length` positions with repeated copies of its own pages,
  // which gives a deep cache without a long prompt for measuring speed. Throws Error as append()
  // does, and if the sequence is empty, ends within a page or is longer than `length`.
  void repeat_pages(std::int32_t sequence, std::int64_t length);

  // Names the layout of saved sequences: device, ranks, types and shape. A sequence can be loaded
  // into any cache of the same form.
  std::string form() const;
  // A sequence as bytes (docs/kv-cache.md).
  std::vector<std::byte> save(std::int32_t sequence) const;
  // Replaces the sequence by the saved one. Throws Error naming `source` if the bytes are not a
  // saved sequence of this form or hold numbers that are not finite (the cache is then unchanged),
  // or if too few pages are free (the sequence is then empty).
  void load(std::int32_t sequence, std::span<const std::byte> bytes, std::string_view source);
  // Positions of a saved sequence, from its header alone. Throws Error if the header is not valid.
  static std::int64_t saved_length(std::span<const std::byte> bytes, std::string_view source);

  // pages[position / 64] of a sequence, valid until it changes.
  std::span<const std::int32_t> pages(std::int32_t sequence) const;
  KvLayers layers() const { return {pages_, copies_.table(), frames_.table()}; }
  KvLayer layer(std::int64_t layer) const { return layers()[layer]; }

  // Makes this cache the leader of ranks that hold the other heads: they repeat its page copies,
  // and take part in saving and loading sequences.
  void lead(KvLeading leading) { leading_.emplace(std::move(leading)); }

  // Reference counts: a page is not changed while a sequence or a caller of hold() holds it.
  void hold(std::int32_t page) { ++references_[static_cast<std::size_t>(page)]; }
  void release(std::int32_t page);
  int holders(std::int32_t page) const { return references_[static_cast<std::size_t>(page)]; }
  std::int64_t page_count() const { return pages_.count(); }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }
  const KvResidual& residual() const { return pages_.residual(); }
  // The most pages that have frames, or f16 copies, at once.
  std::int64_t frame_count() const { return frames_.count(); }
  std::int64_t copy_count() const { return copies_.count(); }

  static constexpr std::int64_t kRewind = KvPages::kRewind;

 private:
  struct Sequence {
    std::vector<std::int32_t> pages;
    std::int64_t length = 0;
    std::int64_t committed = 0;                  // positions before the current step
    std::int64_t passed = 0;                     // pages before this index need no frames
    std::int64_t kept_first = 0, kept_last = 0;  // pages of keep_window()
  };
  Sequence& at(std::int32_t sequence);
  const Sequence& at(std::int32_t sequence) const;
  std::int32_t take_page();
  void copy(const PageCopy& what);
  void copy_page(std::int32_t from, std::int32_t to);
  void copy_copies(std::int32_t from, std::int32_t to);
  // Allocates `count` more positions. New pages that end after position `copied_from` get f16
  // copies; pages with an index below `passed` need no frames.
  void grow(std::int32_t sequence, std::int64_t count, std::int64_t copied_from,
            std::int64_t passed);
  // In layers with windows: the first page that the query at `position` reads, and the first page
  // that a sequence of this length keeps.
  std::int64_t first_visible(std::int64_t position) const;
  std::int64_t first_held(std::int64_t length) const;
  void pass(Sequence& sequence);
  void commit_blocks(Sequence& sequence);
  std::vector<bool> pages_in_use(bool frames) const;
  void give_copy(std::int32_t page);
  void give_frame(std::int32_t page);
  bool codes_reach(std::span<const std::int32_t> pages, std::int64_t length) const;
  bool copies_reach(std::span<const std::int32_t> pages, std::int64_t length) const;
  std::int64_t saved_copies_from(std::int32_t sequence) const;
  std::int64_t saved_frames_from(std::int32_t sequence) const;
  SequenceTransfer transfer_of(std::int32_t sequence, SequenceTransfer::Kind kind,
                               std::int64_t copies_from, std::int64_t frames_from) const;
  void transfer(const SequenceTransfer& what, const std::function<void()>& work) const;
  KvRanks ranks() const;
  bool reaches(std::span<const std::int32_t> pages, std::int64_t length) const;

  KvPages pages_;
  KvPlaces frames_, copies_;
  std::optional<KvLeading> leading_;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> free_;        // stack of free pages
  std::vector<std::int32_t> references_;  // [pages] number of holders
  std::vector<std::uint8_t> quantized_;   // [pages] number of leading blocks that have codes
};

}  // namespace leq
