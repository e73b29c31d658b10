#include "backend/cpu/attention/kv_portable.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/attention/attention_kernels.h"
#include "backend/cpu/attention/kv_layout.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

HeadPage page_of(const KvHead& head, std::byte* page) {
  return head_page(page, head.part, head.type, head.kv_heads, head.head_dim, head.head);
}

// Bytes of the head's scales in its page; the minima have the same size.
std::size_t end_bytes(const KvHead& head) {
  return end_count(head.part, head.type, head.head_dim) * sizeof(std::uint16_t);
}

std::size_t number_bytes_of(const KvHead& head) {
  return kPageTokens * kv_number_bytes(kv_scheme(head.type), head.head_dim);
}

void require_sizes(const KvHead& head, std::size_t page, std::size_t bytes) {
  const std::size_t want = number_bytes_of(head) + 2 * end_bytes(head);
  ensure(bytes == want, "KV cache: a page's head holds ", want, " bytes, ", bytes, " given");
  const std::size_t whole = page_bytes(head.part, head.type, head.kv_heads, head.head_dim);
  ensure(page == whole, "KV cache: a page holds ", whole, " bytes, ", page, " given");
}

// Offset of dimension c of position j, in numbers from the start of the head.
std::size_t place(const KvHead& head, int j, int c) {
  const int d = head.head_dim, block = j / kKeyBlock, lane = j % kKeyBlock;
  int at = j * d + c;
  if (head.part == KvPart::keys) {
    at = (block * d + c) * kKeyBlock + lane;
    if (kv_coded(head.type)) {
      at = ((block * ((d + 3) / 4) + c / 4) * kKeyBlock + lane) * 4 + c % 4;
    }
  }
  return static_cast<std::size_t>(at);
}

// Calls copy(offset in the page, offset in portable order), in bytes from the start of each.
template <class Copy>
void each_number(const KvHead& head, Copy copy) {
  const std::size_t size = number_bytes(head.type);
  std::size_t portable = 0;
  for (int j = 0; j < kPageTokens; ++j) {
    for (int c = 0; c < head.head_dim; ++c, portable += size) {
      copy(place(head, j, c) * size, portable, size);
    }
  }
}

// For packed codes: copy(place in the page, place in portable order). In portable order a token's
// codes are contiguous, from the lowest bit on.
template <class Copy>
void each_code(const KvHead& head, Copy copy) {
  const int bits = kv_scheme(head.type).bits, d = head.head_dim;
  const auto row = static_cast<std::int64_t>(kv_number_bytes(kv_scheme(head.type), d));
  for (int j = 0; j < kPageTokens; ++j) {
    for (int c = 0; c < d; ++c) {
      copy(head.part == KvPart::keys ? key_code_place(bits, d, j, c)
                                     : value_code_place(bits, d, j, c),
           CodePlace{j * row + c * bits / 8, c * bits % 8});
    }
  }
}

void move_code(int bits, const std::byte* from, CodePlace source, std::byte* to, CodePlace target) {
  const unsigned mask = (1u << bits) - 1u;
  const unsigned code = std::to_integer<unsigned>(from[source.byte]) >> source.shift & mask;
  const unsigned rest = std::to_integer<unsigned>(to[target.byte]) & ~(mask << target.shift);
  to[target.byte] = static_cast<std::byte>(rest | code << target.shift);
}

// For scales or minima: copy(index in the page, index in portable order). In portable order scales
// by token are stored token by token.
template <class Copy>
void each_end(const KvHead& head, Copy copy) {
  const auto count = static_cast<std::int64_t>(end_count(head.part, head.type, head.head_dim));
  const KvScheme& scheme = kv_scheme(head.type);
  const KvAlong along = head.part == KvPart::keys ? scheme.keys : scheme.values;
  const std::int64_t groups = along == KvAlong::token ? count / kPageTokens : 1;
  for (std::int64_t at = 0; at < count; ++at) {
    copy(along == KvAlong::token ? at % groups * kPageTokens + at / groups : at, at);
  }
}

}  // namespace

void read_kv(const KvHead& head, std::span<const std::byte> from, std::span<std::byte> out) {
  require_sizes(head, from.size(), out.size());
  const HeadPage page = page_of(head, const_cast<std::byte*>(from.data()));
  if (kv_packed(head.type)) {
    std::ranges::fill(out, std::byte{0});
    each_code(head, [&](CodePlace in_page, CodePlace portable) {
      move_code(kv_scheme(head.type).bits, page.numbers, in_page, out.data(), portable);
    });
  } else {
    each_number(head, [&](std::size_t in_page, std::size_t portable, std::size_t size) {
      std::memcpy(out.data() + portable, page.numbers + in_page, size);
    });
  }
  if (!kv_coded(head.type)) return;
  auto* scales = reinterpret_cast<std::uint16_t*>(out.data() + number_bytes_of(head));
  auto* minima = scales + end_bytes(head) / sizeof *scales;
  each_end(head, [&](std::int64_t in_page, std::int64_t portable) {
    scales[portable] = page.scales[in_page];
    minima[portable] = page.minima[in_page];
  });
}

void write_kv(const KvHead& head, std::span<std::byte> to, std::span<const std::byte> in) {
  require_sizes(head, to.size(), in.size());
  const HeadPage page = page_of(head, to.data());
  if (kv_packed(head.type)) {
    each_code(head, [&](CodePlace in_page, CodePlace portable) {
      move_code(kv_scheme(head.type).bits, in.data(), portable, page.numbers, in_page);
    });
  } else {
    each_number(head, [&](std::size_t in_page, std::size_t portable, std::size_t size) {
      std::memcpy(page.numbers + in_page, in.data() + portable, size);
    });
  }
  if (!kv_coded(head.type)) return;
  const auto* scales = reinterpret_cast<const std::uint16_t*>(in.data() + number_bytes_of(head));
  const auto* minima = scales + end_bytes(head) / sizeof *scales;
  each_end(head, [&](std::int64_t in_page, std::int64_t portable) {
    page.scales[in_page] = scales[portable];
    page.minima[in_page] = minima[portable];
  });
}

}  // namespace leq::cpu
