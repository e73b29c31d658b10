// The layout of saved sequences: which numbers are saved, and the offsets of one KV head's numbers
// in the saved bytes and in a page (docs/kv-cache.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "backend/kv_types.h"
#include "base/half.h"
#include "cache/kv_pages.h"

namespace leq {

// The saved parts of a sequence of `length` positions: codes of the first `coded` positions if the
// scheme has blocks, otherwise all numbers; f16 copies of the first page and of the last pages.
struct SavedParts {
  std::int64_t length = 0, coded = 0, copies_from = 0, first_copies = 0;

  std::int64_t copies() const {
    return first_copies + std::max<std::int64_t>(0, length - copies_from);
  }
};

inline SavedParts parts_of(const KvResidual& residual, std::int64_t length,
                           std::int64_t copies_from) {
  SavedParts parts = {length, residual.quantized(length), copies_from, 0};
  if (residual.sinks > 0 && copies_from > 0)
    parts.first_copies = std::min<std::int64_t>(length, kPageTokens);
  return parts;
}

// One KV head's part of a saved sequence and of a page: numbers, then scales and minima if the
// scheme has them, then f16 copies if there are any.
class SavedHead {
 public:
  SavedHead(KvType type, KvPart part, int head_dim, const SavedParts& saved)
      : scheme_(kv_scheme(type)), part_(part), head_dim_(head_dim), saved_(saved) {}

  // Number of positions whose numbers are saved.
  std::int64_t positions() const { return scheme_.blocked() ? saved_.coded : saved_.length; }
  // Bytes of the numbers of `positions` positions, and bytes of their scales (or of their minima).
  std::size_t numbers(std::int64_t positions) const {
    return static_cast<std::size_t>(positions) * kv_number_bytes(scheme_, head_dim_);
  }
  std::size_t ends(std::int64_t positions) const {
    return kv_scale_count(scheme_, part_, head_dim_, positions) * sizeof(std::uint16_t);
  }
  std::size_t coded_bytes(std::int64_t positions) const {
    return numbers(positions) + 2 * ends(positions);
  }
  std::size_t copy_bytes(std::int64_t positions) const {
    return static_cast<std::size_t>(positions) * static_cast<std::size_t>(head_dim_) *
           sizeof(std::uint16_t);
  }
  std::size_t bytes() const {
    return coded_bytes(positions()) + (scheme_.blocked() ? copy_bytes(saved_.copies()) : 0);
  }
  // Calls copy(offset in the saved part, offset in the page, bytes) for `count` positions from
  // `first` on, which must be the first position of a page.
  template <class Copy>
  void each(std::int64_t first, std::int64_t count, Copy copy) const {
    const std::int64_t all = positions();
    copy(numbers(first), std::size_t{0}, numbers(count));
    if (!scheme_.coded()) return;
    const std::size_t of_page = ends(kPageTokens);
    copy(numbers(all) + ends(first), numbers(kPageTokens), ends(count));
    copy(numbers(all) + ends(all) + ends(first), numbers(kPageTokens) + of_page, ends(count));
  }
  // Offset in the saved part of the copies of positions from `first` on.
  std::size_t copies_at(std::int64_t first) const {
    const std::int64_t before =
        first < saved_.copies_from ? first : saved_.first_copies + first - saved_.copies_from;
    return coded_bytes(positions()) + copy_bytes(before);
  }
  // Whether all numbers are finite, because a NaN would spread to every later token.
  bool finite(std::span<const std::byte> bytes) const {
    if (!scheme_.coded() && scheme_.bits == 32) {
      return all_finite<float>(bytes, [](float x) { return x; });
    }
    const std::size_t codes = scheme_.coded() ? numbers(positions()) : 0;
    return all_finite<std::uint16_t>(bytes.subspan(codes), f16_to_f32);
  }

 private:
  template <class Number, class Widen>
  static bool all_finite(std::span<const std::byte> bytes, Widen widen) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Number)) {
      Number number;
      std::memcpy(&number, bytes.data() + at, sizeof number);
      const float value = widen(number);
      if (!(value - value == 0.0f)) return false;
    }
    return true;
  }

  const KvScheme& scheme_;
  KvPart part_;
  int head_dim_;
  SavedParts saved_;
};

// Calls visit(layer, part, SavedHead) for keys and values of every layer, in the order of saved
// sequences, which contain one such part for each KV head.
template <class Visit>
void each_part(const KvShape& shape, const SavedParts& saved, Visit visit) {
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      visit(layer, part, SavedHead(shape.type(layer, part), part, shape.head_dim, saved));
    }
  }
}

// Bytes of `kv_heads` heads, which may be more than this rank's shape has.
inline std::uint64_t saved_bytes(const KvShape& shape, std::int64_t kv_heads,
                                 const SavedParts& saved) {
  std::uint64_t bytes = 0;
  each_part(shape, saved, [&](std::int64_t, KvPart, const SavedHead& head) {
    bytes += static_cast<std::uint64_t>(kv_heads) * head.bytes();
  });
  return bytes;
}

}  // namespace leq
