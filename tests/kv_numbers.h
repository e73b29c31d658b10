// Reads keys and values from pages of a device, in an order that does not depend on the device:
// a kv head's numbers [64][d] of the cache's type, codes from the lowest bit on without gaps, then
// f16 scales and f16 minima, per token [64][groups] or per channel [64 / block][d].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "backend/cpu/attention/kv_pages.h"
#include "backend/layout.h"
#include "backend/memory.h"
#include "base/error.h"
#include "cache/kv_cache.h"
#include "cuda/layout/gpu_layout.h"
#include "cuda/layout/kv_codes.h"

namespace leq::test {

// The keys or the values of one kv head in one page of a layer.
struct KvHead {
  KvPart part = KvPart::keys;
  KvType type = kUsualKv;
  int kv_heads = 0;  // kv heads of the layer
  int head_dim = 0;  // d
  int head = 0;
};

enum class PageOrder : std::uint8_t { cpu, gpu };
inline PageOrder order_of(const Layout& layout) {
  return layout.kv_layout().starts_with("CPU") ? PageOrder::cpu : PageOrder::gpu;
}

// Places of one head's numbers in a page, in bytes and bits from the start of the page, and of its
// scales, as indices of f16 numbers from the page's first scale or minimum of the head.
class PagePlaces {
 public:
  PagePlaces(PageOrder order, const KvHead& head) : order_(order), head_(head) {
    const auto ends = 2 * end_count() * sizeof(std::uint16_t);
    bytes_ = order == PageOrder::cpu
                 ? cpu::page_bytes(head.part, head.type, head.kv_heads, head.head_dim)
                 : gpu::kv_page_bytes(head.part, head.type, head.kv_heads, head.head_dim);
    of_head_ = bytes_ / static_cast<std::size_t>(head.kv_heads) - ends;
  }

  std::size_t page_bytes() const { return bytes_; }
  std::size_t row_bytes() const { return kv_number_bytes(scheme(), head_.head_dim); }
  std::size_t end_count() const {
    return kv_scale_count(scheme(), head_.part, head_.head_dim, kPageTokens);
  }
  std::size_t portable_bytes() const { return kPageTokens * row_bytes() + 4 * end_count(); }

  // Bit of the number of channel c of position j.
  std::size_t number_bit(int j, int c) const {
    const int bits = scheme().bits, d = head_.head_dim;
    const std::size_t first = static_cast<std::size_t>(head_.head) * of_head_ * 8;
    const bool keys = head_.part == KvPart::keys;
    if (order_ == PageOrder::gpu && scheme().packed) {
      const gpu::KvCodePlace at = gpu::kv_code_place(head_.part, d, j, c);
      return first + static_cast<std::size_t>(at.word * 32 + at.shift);
    }
    if (order_ == PageOrder::gpu) {
      const auto row = static_cast<int>(gpu::kv_row_bytes(d, bits / 8));
      return first + static_cast<std::size_t>(8 * j * row + c * bits);
    }
    if (scheme().packed) {
      const cpu::CodePlace at =
          keys ? cpu::key_code_place(bits, d, j, c) : cpu::value_code_place(bits, d, j, c);
      return first + static_cast<std::size_t>(at.byte * 8 + at.shift);
    }
    int at = j * d + c;
    if (keys && scheme().coded()) {
      at = ((j / 16 * ((d + 3) / 4) + c / 4) * 16 + j % 16) * 4 + c % 4;
    } else if (keys) {
      at = (j / 16 * d + c) * 16 + j % 16;
    }
    return first + static_cast<std::size_t>(at * bits);
  }

  // Byte of the scale, or of the minimum, whose index in portable order is `at`.
  std::size_t end_byte(std::size_t at, bool minimum) const {
    const bool keys = head_.part == KvPart::keys;
    const std::size_t groups = end_count() / kPageTokens,
                      dims = static_cast<std::size_t>(head_.head_dim);
    std::size_t index = at;
    if ((keys ? scheme().keys : scheme().values) == KvAlong::token) {
      const std::size_t slot = at / groups;
      const bool turned = order_ == PageOrder::gpu && !keys && scheme().packed;
      index = at % groups * kPageTokens +
              (turned ? static_cast<std::size_t>(gpu::kv_value_end(static_cast<int>(slot))) : slot);
    } else if (order_ == PageOrder::gpu) {
      index = at / dims * dims + static_cast<std::size_t>(
                                     gpu::kv_key_end(head_.head_dim, static_cast<int>(at % dims)));
    }
    const auto heads = static_cast<std::size_t>(head_.kv_heads);
    const std::size_t head = static_cast<std::size_t>(head_.head) + (minimum ? heads : 0);
    return heads * of_head_ + (head * end_count() + index) * sizeof(std::uint16_t);
  }

  const KvScheme& scheme() const { return kv_scheme(head_.type); }

 private:
  PageOrder order_;
  KvHead head_;
  std::size_t bytes_ = 0, of_head_ = 0;  // bytes of the page, and of one head's numbers in it
};

// Copies `bits` bits, at most 8 or a multiple of 8.
inline void copy_bits(int bits, const std::byte* from, std::size_t source, std::byte* to,
                      std::size_t target) {
  if (bits % 8 == 0) {
    std::memcpy(to + target / 8, from + source / 8, static_cast<std::size_t>(bits) / 8);
    return;
  }
  const unsigned mask = (1u << bits) - 1u;
  const unsigned code = std::to_integer<unsigned>(from[source / 8]) >> source % 8 & mask;
  const unsigned rest = std::to_integer<unsigned>(to[target / 8]) & ~(mask << target % 8);
  to[target / 8] = static_cast<std::byte>(rest | code << target % 8);
}

// Calls copy(bits, bit in the page, bit in portable order) for everything of a head.
template <class Copy>
void each_kv_number(const PagePlaces& places, const KvHead& head, Copy copy) {
  const int bits = places.scheme().bits;
  for (int j = 0; j < kPageTokens; ++j) {
    for (int c = 0; c < head.head_dim; ++c) {
      copy(bits, places.number_bit(j, c),
           8 * places.row_bytes() * static_cast<std::size_t>(j) +
               static_cast<std::size_t>(c * bits));
    }
  }
  const std::size_t first = 8 * kPageTokens * places.row_bytes();
  for (std::size_t at = 0; at < places.end_count(); ++at) {
    copy(16, 8 * places.end_byte(at, false), first + 16 * at);
    copy(16, 8 * places.end_byte(at, true), first + 16 * (places.end_count() + at));
  }
}

inline void read_kv(PageOrder order, const KvHead& head, std::span<const std::byte> page,
                    std::span<std::byte> out) {
  const PagePlaces places(order, head);
  ensure(page.size() == places.page_bytes() && out.size() == places.portable_bytes(), "a page of ",
         page.size(), " bytes, a head of ", out.size());
  std::ranges::fill(out, std::byte{0});
  each_kv_number(places, head, [&](int bits, std::size_t in_page, std::size_t portable) {
    copy_bits(bits, page.data(), in_page, out.data(), portable);
  });
}

// Changes only this head's part of the page.
inline void write_kv(PageOrder order, const KvHead& head, std::span<std::byte> page,
                     std::span<const std::byte> in) {
  const PagePlaces places(order, head);
  ensure(page.size() == places.page_bytes() && in.size() == places.portable_bytes(), "a page of ",
         page.size(), " bytes, a head of ", in.size());
  each_kv_number(places, head, [&](int bits, std::size_t in_page, std::size_t portable) {
    copy_bits(bits, in.data(), portable, page.data(), in_page);
  });
}

// What the cache holds of a sequence for its next query, for all layers, keys and values, heads:
// numbers, scales and minima by position (of types with blocks the complete blocks' codes), then
// f16 copies of the sinks and of the positions that have no codes. Zeros before a window.
inline std::vector<std::byte> kv_numbers(const KvCache& cache, DeviceMemory& memory,
                                         const Layout& layout, std::int32_t sequence) {
  std::vector<std::byte> all;
  const KvShape& shape = cache.shape();
  const std::int64_t length = cache.length(sequence);
  const auto pages = cache.pages(sequence);
  const auto add = [&](std::span<const std::byte> bytes) {
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  const auto head_at = [&](const KvHead& head, const std::byte* at) {
    const PagePlaces places(order_of(layout), head);
    std::vector<std::byte> page(places.page_bytes()), out(places.portable_bytes());
    memory.read(at, page);
    read_kv(order_of(layout), head, page, out);
    return out;
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const KvLayer kv = cache.layer(layer);
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      const bool keys = part == KvPart::keys;
      const KvType type = keys ? kv.key_type : kv.value_type;
      const KvScheme& scheme = kv_scheme(type);
      const std::int64_t coded = scheme.blocked() ? kv.residual.quantized(length) : length;
      for (int index = 0; index < shape.kv_heads; ++index) {
        const KvHead head = {part, type, shape.kv_heads, shape.head_dim, index};
        const KvHead copy = {part, KvType::f16, shape.kv_heads, shape.head_dim, index};
        for (std::int64_t page = 0; page < std::ssize(pages); ++page) {
          const std::int32_t number = pages[static_cast<std::size_t>(page)];
          if (kv.place(number) < 0) continue;  // before a window
          const auto at = static_cast<std::size_t>(kv.place(number));
          const std::int64_t first = page * kPageTokens;
          if (const auto count = std::min<std::int64_t>(kPageTokens, coded - first); count > 0) {
            const auto out =
                head_at(head, (keys ? kv.keys : kv.values) +
                                  at * (keys ? kv.key_page_bytes : kv.value_page_bytes));
            const std::size_t row = kv_number_bytes(scheme, shape.head_dim);
            const std::size_t ends = kv_scale_count(scheme, part, shape.head_dim, kPageTokens);
            const std::size_t own = 2 * kv_scale_count(scheme, part, shape.head_dim, count);
            add(std::span(out).first(static_cast<std::size_t>(count) * row));
            add(std::span(out).subspan(kPageTokens * row, own));
            add(std::span(out).subspan(kPageTokens * row + 2 * ends, own));
          }
          if (!scheme.blocked()) continue;
          for (std::int64_t j = first; j < std::min(length, first + kPageTokens); ++j) {
            if (j >= kv.residual.sinks && j < kv.residual.quantized(length)) continue;
            const std::int32_t of = kv.copies[static_cast<std::size_t>(number)];
            if (of < 0) continue;  // no query reads it
            const auto out = head_at(copy, (keys ? kv.key_copies : kv.value_copies) +
                                               static_cast<std::size_t>(of) * kv.copy_page_bytes);
            const std::size_t row = kv_number_bytes(kv_scheme(KvType::f16), shape.head_dim);
            add(std::span(out).subspan(static_cast<std::size_t>(j - first) * row, row));
          }
        }
      }
    }
  }
  return all;
}

}  // namespace leq::test
