#include "cache/kv_pages.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::array kParts = {KvPart::keys, KvPart::values};

// Number of pages. Every sequence may have a partial page of its own. With windows fewer are
// needed; the number includes the copy of a shared page before that page is released.
std::int64_t pages_of(const KvShape& shape) {
  const std::int64_t whole = pages_for(shape.positions) + shape.sequences - 1;
  if (shape.window == 0) return whole;
  return std::min(whole,
                  shape.sequences * (window_pages(shape) + 2) + pages_for(shape.batch_tokens));
}

KvResidual residual_of(const KvShape& shape) {
  const KvResidual residual =
      shape.residual.value_or(kv_residual(shape.key_type, shape.value_type));
  ensure(!residual.copies() || (residual.sinks >= 0 && residual.sinks <= kPageTokens &&
                                residual.recent >= 0 && kPageTokens % residual.block == 0),
         "KV cache: residual of ", residual.sinks, " sinks, ", residual.recent,
         " newest positions, blocks of ", residual.block);
  return residual;
}

// Number of f16 copies that all sequences need while one step appends.
std::int64_t copies_of(const KvShape& shape, const KvResidual& residual) {
  if (!residual.copies()) return 0;
  const std::int64_t of_sequence =
      pages_for(kept_positions(residual)) + (residual.sinks > 0 ? 3 : 2);
  const std::int64_t all = of_sequence * shape.sequences + pages_for(shape.batch_tokens);
  return std::min(all, pages_of(shape));
}

}  // namespace

std::int64_t window_pages(const KvShape& shape) {
  return pages_for(shape.window + KvPages::kRewind) + 1;
}

std::int64_t kept_positions(const KvResidual& residual) {
  return residual.recent + residual.block + KvPages::kRewind;
}

KvType KvShape::type(std::int64_t layer, KvPart part) const {
  const std::vector<KvType>& own = part == KvPart::keys ? layer_key_types : layer_value_types;
  if (own.empty()) return part == KvPart::keys ? key_type : value_type;
  return own.at(static_cast<std::size_t>(layer));
}

KvPages::KvPages(DeviceMemory& memory, const Layout& layout, const KvShape& shape)
    : memory_(memory),
      layers_(shape.layers),
      residual_(residual_of(shape)),
      count_(pages_of(shape)),
      copy_count_(copies_of(shape, residual_)) {
  if (residual_.copies()) {
    copy_page_bytes_ = layout.page_bytes(KvPart::keys, KvType::f16, shape.kv_heads, shape.head_dim);
  }
  std::size_t ends[2] = {}, copies_end = 0;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const KvPart part : kParts) {
      Side side;
      side.type = shape.type(layer, part);
      side.page_bytes = layout.page_bytes(part, side.type, shape.kv_heads, shape.head_dim);
      std::size_t& end = ends[part == KvPart::keys ? 0 : 1];
      side.pages_at = end;
      end += static_cast<std::size_t>(count_) * side.page_bytes;
      side.copied = kv_scheme(side.type).blocked();
      side.copies_at = copies_end;
      if (side.copied) copies_end += static_cast<std::size_t>(copy_count_) * copy_page_bytes_;
      sides_.push_back(side);
    }
  }
  keys_ = Buffer(memory, ends[0]);
  values_ = Buffer(memory, ends[1]);
  if (copies_end > 0) copied_ = Buffer(memory, copies_end);
}

KvLayer KvPages::layer(std::int64_t layer, std::span<const std::int32_t> copies) const {
  const Side &keys = side(layer, KvPart::keys), &values = side(layer, KvPart::values);
  KvLayer view = {keys.type,
                  values.type,
                  page_at(layer, KvPart::keys, 0),
                  page_at(layer, KvPart::values, 0),
                  keys.page_bytes,
                  values.page_bytes};
  view.residual = residual_;
  if (keys.copied) view.key_copies = copy_at(layer, KvPart::keys, 0);
  if (values.copied) view.value_copies = copy_at(layer, KvPart::values, 0);
  view.copy_page_bytes = copy_page_bytes_;
  view.copies = copies;
  return view;
}

std::byte* KvPages::page_at(std::int64_t layer, KvPart part, std::int32_t page) const {
  const Buffer& all = part == KvPart::keys ? keys_ : values_;
  const Side& own = side(layer, part);
  return all.data() + own.pages_at + static_cast<std::size_t>(page) * own.page_bytes;
}

std::byte* KvPages::copy_at(std::int64_t layer, KvPart part, std::int32_t copy) const {
  return copied_.data() + side(layer, part).copies_at +
         static_cast<std::size_t>(copy) * copy_page_bytes_;
}

void KvPages::copy_page(std::int32_t from, std::int32_t to) {
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    for (const KvPart part : kParts) {
      const std::size_t bytes = side(layer, part).page_bytes;
      if (bytes == 0) continue;  // a rank without heads has no memory
      memory_.copy(page_at(layer, part, to), page_at(layer, part, from), bytes);
    }
  }
}

void KvPages::copy_copy(std::int32_t from, std::int32_t to) {
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    for (const KvPart part : kParts) {
      if (!side(layer, part).copied) continue;
      memory_.copy(copy_at(layer, part, to), copy_at(layer, part, from), copy_page_bytes_);
    }
  }
}

}  // namespace leq
