#include "cuda/layout/kv_pages.h"

#include <cstring>

#include "base/error.h"
#include "cuda/layout/kv_codes.h"
#include "cuda/layout/layout.h"

namespace leq::gpu {
namespace {

std::size_t row_bytes(KvType type, int head_dim) {
  return static_cast<std::size_t>(kv_row_bytes(head_dim, kv_scheme(type).bits / 8));
}

std::size_t number_bytes_in_page(KvType type, int head_dim) {
  if (!kv_packed(type)) return kPageTokens * row_bytes(type, head_dim);
  return static_cast<std::size_t>(kv_code_bytes(kv_scheme(type).bits, head_dim));
}

// Returns the number of scales of a head in a page; there are as many minima.
std::size_t end_count(KvPart part, KvType type, int head_dim) {
  return static_cast<std::size_t>(kv_ends(part, type, head_dim));
}

// Offsets of a head's parts in its page, and bytes per position in the page and in portable order.
struct HeadParts {
  std::size_t numbers, scales, minima;
  std::size_t row, portable_row;
  std::size_t ends;  // number of scales, and of minima
};

HeadParts parts_of(const KvHead& head, std::size_t page, std::size_t given) {
  HeadParts parts = {};
  parts.row = row_bytes(head.type, head.head_dim);
  parts.portable_row = kv_number_bytes(kv_scheme(head.type), head.head_dim);
  parts.ends = end_count(head.part, head.type, head.head_dim);
  const auto heads = static_cast<std::size_t>(head.kv_heads);
  const auto index = static_cast<std::size_t>(head.head);
  const std::size_t numbers = number_bytes_in_page(head.type, head.head_dim);
  const std::size_t end_bytes = parts.ends * sizeof(std::uint16_t);
  parts.numbers = index * numbers;
  parts.scales = heads * numbers + index * end_bytes;
  parts.minima = parts.scales + heads * end_bytes;
  const std::size_t want = kPageTokens * parts.portable_row + 2 * end_bytes;
  ensure(given == want, "KV cache: a page's head holds ", want, " bytes, ", given, " given");
  const std::size_t whole = kv_page_bytes(head.part, head.type, head.kv_heads, head.head_dim);
  ensure(page == whole, "KV cache: a page holds ", whole, " bytes, ", page, " given");
  return parts;
}

// The location of a code: byte index, and shift within the byte.
struct BytePlace {
  std::size_t byte = 0;
  int shift = 0;
};

// Calls move(location in the head's part of the page, location in portable order) for each code.
template <class Move>
void each_code(const KvHead& head, std::size_t portable_row, Move move) {
  const int bits = kv_scheme(head.type).bits;
  for (int j = 0; j < kPageTokens; ++j) {
    for (int c = 0; c < head.head_dim; ++c) {
      const KvCodePlace at = kv_code_place(head.part, bits, head.head_dim, j, c);
      const auto first = static_cast<std::size_t>(c * bits);
      move(BytePlace{static_cast<std::size_t>(at.word * 4 + at.shift / 8), at.shift % 8},
           BytePlace{static_cast<std::size_t>(j) * portable_row + first / 8,
                     static_cast<int>(first % 8)});
    }
  }
}

void move_code(int bits, const std::byte* from, BytePlace source, std::byte* to, BytePlace target) {
  const unsigned mask = (1u << bits) - 1u;
  const unsigned code = std::to_integer<unsigned>(from[source.byte]) >> source.shift & mask;
  const unsigned rest = std::to_integer<unsigned>(to[target.byte]) & ~(mask << target.shift);
  to[target.byte] = static_cast<std::byte>(rest | code << target.shift);
}

// Calls copy(index in the page, index in portable order) for scales or minima. In portable order
// the groups of a token are contiguous, and so are the channels of a block.
template <class Copy>
void each_end(const KvHead& head, std::size_t count, Copy copy) {
  const KvScheme& scheme = kv_scheme(head.type);
  const bool keys = head.part == KvPart::keys;
  const std::size_t groups = count / kPageTokens, dims = static_cast<std::size_t>(head.head_dim);
  for (std::size_t at = 0; at < count; ++at) {
    if ((keys ? scheme.keys : scheme.values) == KvAlong::token) {
      const std::size_t slot = at / groups;
      const auto end = static_cast<std::size_t>(kv_value_end(static_cast<int>(slot)));
      copy(at % groups * kPageTokens + (keys || !scheme.packed ? slot : end), at);
    } else {
      const int end = kv_key_end(head.head_dim, static_cast<int>(at % dims));
      copy(at / dims * dims + static_cast<std::size_t>(end), at);
    }
  }
}

}  // namespace

std::size_t kv_page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) {
  const std::size_t ends = 2 * end_count(part, type, head_dim) * sizeof(std::uint16_t);
  return static_cast<std::size_t>(kv_heads) * (number_bytes_in_page(type, head_dim) + ends);
}

void read_kv_head(const KvHead& head, std::span<const std::byte> page, std::span<std::byte> out) {
  const HeadParts parts = parts_of(head, page.size(), out.size());
  const std::byte* const numbers = page.data() + parts.numbers;
  if (kv_packed(head.type)) {
    std::memset(out.data(), 0, out.size());
    each_code(head, parts.portable_row, [&](BytePlace in_page, BytePlace portable) {
      move_code(kv_scheme(head.type).bits, numbers, in_page, out.data(), portable);
    });
  } else {
    for (std::size_t j = 0; j < kPageTokens; ++j) {
      std::memcpy(out.data() + j * parts.portable_row, numbers + j * parts.row, parts.portable_row);
    }
  }
  const auto* const scales = reinterpret_cast<const std::uint16_t*>(page.data() + parts.scales);
  const auto* const minima = reinterpret_cast<const std::uint16_t*>(page.data() + parts.minima);
  auto* const ends =
      reinterpret_cast<std::uint16_t*>(out.data() + kPageTokens * parts.portable_row);
  each_end(head, parts.ends, [&](std::size_t in_page, std::size_t portable) {
    ends[portable] = scales[in_page];
    ends[parts.ends + portable] = minima[in_page];
  });
}

void write_kv_head(const KvHead& head, std::span<std::byte> page, std::span<const std::byte> in) {
  const HeadParts parts = parts_of(head, page.size(), in.size());
  std::byte* const numbers = page.data() + parts.numbers;
  if (kv_packed(head.type)) {
    each_code(head, parts.portable_row, [&](BytePlace in_page, BytePlace portable) {
      move_code(kv_scheme(head.type).bits, in.data(), portable, numbers, in_page);
    });
  } else {
    for (std::size_t j = 0; j < kPageTokens; ++j) {
      std::memcpy(numbers + j * parts.row, in.data() + j * parts.portable_row, parts.portable_row);
    }
  }
  auto* const scales = reinterpret_cast<std::uint16_t*>(page.data() + parts.scales);
  auto* const minima = reinterpret_cast<std::uint16_t*>(page.data() + parts.minima);
  const auto* const ends =
      reinterpret_cast<const std::uint16_t*>(in.data() + kPageTokens * parts.portable_row);
  each_end(head, parts.ends, [&](std::size_t in_page, std::size_t portable) {
    scales[in_page] = ends[portable];
    minima[in_page] = ends[parts.ends + portable];
  });
}

}  // namespace leq::gpu
