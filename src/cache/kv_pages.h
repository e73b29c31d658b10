// The memory of a KV cache: pages of 64 positions for all layers, and f16 copies of some pages.
// KvCache assigns pages to sequences. If ranks share a model, each rank has pages for its own KV
// heads, with the same page numbers as the leader's cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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
  std::int64_t positions = 0;  // total of all sequences
  int sequences = 1;
  std::optional<KvResidual> residual = {};  // nullopt: the default of the types
  std::int64_t batch_tokens = 512;          // most positions that one step appends
  // [layers]; empty: key_type and value_type in all layers
  std::vector<KvType> layer_key_types = {}, layer_value_types = {};
  std::uint32_t key_centre_check = 0;  // checksum of the key centres, for saved sequences
  std::int64_t window = 0;             // number of newest positions that a query sees; 0: all

  KvType type(std::int64_t layer, KvPart part) const;
};

class KvPages {
 public:
  // Allocates all memory at once. `memory` must outlive the pages.
  KvPages(DeviceMemory& memory, const Layout& layout, const KvShape& shape);

  const KvResidual& residual() const { return residual_; }
  std::int64_t count() const { return count_; }
  std::int64_t copy_count() const { return copy_count_; }

  // `copies`: [pages] the f16 copy of each page, -1 for none; the view refers to this table.
  KvLayer layer(std::int64_t layer, std::span<const std::int32_t> copies) const;
  // Copy all layers of a page, or all layers of a page's f16 copy.
  void copy_page(std::int32_t from, std::int32_t to);
  void copy_copy(std::int32_t from, std::int32_t to);

  // The keys or values of one layer: addresses of pages and of f16 copies.
  struct Side {
    KvType type = kUsualKv;
    std::size_t page_bytes = 0, pages_at = 0;
    bool copied = false;
    std::size_t copies_at = 0;
  };
  const Side& side(std::int64_t layer, KvPart part) const {
    return sides_[static_cast<std::size_t>(2 * layer + (part == KvPart::keys ? 0 : 1))];
  }
  std::byte* page_at(std::int64_t layer, KvPart part, std::int32_t page) const;
  std::byte* copy_at(std::int64_t layer, KvPart part, std::int32_t copy) const;
  std::size_t copy_page_bytes() const { return copy_page_bytes_; }

  // Number of positions by which a sequence may be truncated.
  static constexpr std::int64_t kRewind = 512;

 private:
  DeviceMemory& memory_;
  std::int64_t layers_;
  KvResidual residual_;
  std::int64_t count_, copy_count_;
  std::size_t copy_page_bytes_ = 0;
  std::vector<Side> sides_;  // [layers][keys, values]
  Buffer keys_;              // keys of each layer [pages][page bytes]
  Buffer values_;
  Buffer copied_;  // [sides with copies][copies][copy_page_bytes]
};

// Number of pages that a sequence holds when its length is well beyond the window.
std::int64_t window_pages(const KvShape& shape);

// Number of positions that a sequence may still read or be truncated to.
std::int64_t kept_positions(const KvResidual& residual);

// The keys and values of all layers, for a step.
struct KvLayers {
  const KvPages& pages;
  std::span<const std::int32_t> copies;

  KvLayer operator[](std::int64_t layer) const { return pages.layer(layer, copies); }
};

}  // namespace leq
