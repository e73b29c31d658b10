#include "cuda/layout/kv_pages.h"

#include <cstring>

#include "base/error.h"
#include "cuda/layout/layout.h"

namespace leq::gpu {
namespace {

constexpr std::size_t kEndBytes = kPageTokens * sizeof(std::uint16_t);  // scales or minima

std::size_t row_bytes(KvType type, int head_dim) {
  return static_cast<std::size_t>(kv_row_bytes(head_dim, kv_scheme(type).bits / 8));
}

// Where a head's parts lie in its page, and the sizes of its rows there and in portable order.
struct HeadParts {
  std::size_t numbers, scales, minima;
  std::size_t row, portable_row;
  bool coded;
};

HeadParts parts_of(const KvHead& head, std::size_t page, std::size_t given) {
  HeadParts parts = {};
  parts.row = row_bytes(head.type, head.head_dim);
  parts.portable_row = kv_number_bytes(kv_scheme(head.type), head.head_dim);
  parts.coded = kv_coded(head.type);
  const auto heads = static_cast<std::size_t>(head.kv_heads);
  const auto index = static_cast<std::size_t>(head.head);
  parts.numbers = index * kPageTokens * parts.row;
  parts.scales = heads * kPageTokens * parts.row + index * kEndBytes;
  parts.minima = parts.scales + heads * kEndBytes;
  const std::size_t want = kPageTokens * parts.portable_row + (parts.coded ? 2 * kEndBytes : 0);
  ensure(given == want, "KV cache: a page's head holds ", want, " bytes, ", given, " given");
  const std::size_t whole = kv_page_bytes(head.type, head.kv_heads, head.head_dim);
  ensure(page == whole, "KV cache: a page holds ", whole, " bytes, ", page, " given");
  return parts;
}

}  // namespace

std::size_t kv_page_bytes(KvType type, int kv_heads, int head_dim) {
  const std::size_t ends = kv_coded(type) ? 2 * kEndBytes : 0;
  return static_cast<std::size_t>(kv_heads) * (kPageTokens * row_bytes(type, head_dim) + ends);
}

void read_kv_head(const KvHead& head, std::span<const std::byte> page, std::span<std::byte> out) {
  const HeadParts parts = parts_of(head, page.size(), out.size());
  for (std::size_t j = 0; j < kPageTokens; ++j) {
    std::memcpy(out.data() + j * parts.portable_row, page.data() + parts.numbers + j * parts.row,
                parts.portable_row);
  }
  if (!parts.coded) return;
  std::byte* const ends = out.data() + kPageTokens * parts.portable_row;
  std::memcpy(ends, page.data() + parts.scales, kEndBytes);
  std::memcpy(ends + kEndBytes, page.data() + parts.minima, kEndBytes);
}

void write_kv_head(const KvHead& head, std::span<std::byte> page, std::span<const std::byte> in) {
  const HeadParts parts = parts_of(head, page.size(), in.size());
  for (std::size_t j = 0; j < kPageTokens; ++j) {
    std::memcpy(page.data() + parts.numbers + j * parts.row, in.data() + j * parts.portable_row,
                parts.portable_row);
  }
  if (!parts.coded) return;
  const std::byte* const ends = in.data() + kPageTokens * parts.portable_row;
  std::memcpy(page.data() + parts.scales, ends, kEndBytes);
  std::memcpy(page.data() + parts.minima, ends + kEndBytes, kEndBytes);
}

}  // namespace leq::gpu
