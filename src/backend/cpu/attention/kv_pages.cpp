#include "backend/cpu/attention/kv_pages.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace leq::cpu {
namespace {

const KvKernels& kernels_of(const AttentionKernels& kernels, KvType type) {
  return kernels.kv[static_cast<std::size_t>(type)];
}

// The type in which new keys or values are stored first.
KvType written_type(KvType type) { return kv_scheme(type).blocked() ? KvType::f16 : type; }

// Neighbouring dimensions of a float key are stored 16 numbers apart.
template <class Number>
void spread_key(const Number* key, int dims, std::int64_t slot, std::byte* numbers) {
  auto* at =
      reinterpret_cast<Number*>(numbers) + slot / kKeyBlock * dims * kKeyBlock + slot % kKeyBlock;
  for (int c = 0; c < dims; ++c) at[c * kKeyBlock] = key[c];
}

// Neighbouring quads of dimensions are stored 64 bytes apart.
void spread_key_codes(const std::uint8_t* codes, int dims, std::int64_t slot, std::byte* numbers) {
  const int quads = (dims + 3) / 4;
  auto* at = reinterpret_cast<std::uint8_t*>(numbers) + slot / kKeyBlock * quads * 64 +
             slot % kKeyBlock * 4;
  for (int c = 0; c < dims; ++c) at[c / 4 * 64 + c % 4] = codes[c];
}

void put_code(int bits, std::byte* numbers, CodePlace place, std::uint8_t code) {
  const unsigned mask = ((1u << bits) - 1u) << place.shift;
  const unsigned rest = std::to_integer<unsigned>(numbers[place.byte]) & ~mask;
  numbers[place.byte] = static_cast<std::byte>(rest | static_cast<unsigned>(code) << place.shift);
}

// Encodes a value, group by group of its channels.
void encode_value(const PackedKernels& kernels, const KvScheme& scheme, const float* value,
                  int dims, std::int64_t slot, const HeadPage& page) {
  const int width = scheme.group == 0 ? dims : scheme.group;
  std::array<std::uint8_t, kMostDims> codes;
  for (int first = 0; first < dims; first += width) {
    kernels.encode(value + first, std::min(width, dims - first), 0, scheme.bits,
                   codes.data() + first, page.scales + first / width * kPageTokens + slot,
                   page.minima + first / width * kPageTokens + slot);
  }
  for (int c = 0; c < dims; ++c) {
    const CodePlace place = value_code_place(scheme.bits, dims, static_cast<int>(slot), c);
    put_code(scheme.bits, page.numbers, place, codes[static_cast<std::size_t>(c)]);
  }
}

}  // namespace

void store_key(const StoreKernels& kernels, KvType type, const float* key, int dims,
               std::int64_t slot, const HeadPage& page, float* wide) {
  const KvType as = written_type(type);
  if (kv_packed(as)) {
    const int bits = kv_scheme(as).bits;
    auto* codes = reinterpret_cast<std::uint8_t*>(wide);
    kernels.packed.encode(key, dims, 0, bits, codes, page.scale(slot), page.minimum(slot));
    for (int c = 0; c < dims; ++c) {
      put_code(bits, page.numbers, key_code_place(bits, dims, static_cast<int>(slot), c), codes[c]);
    }
    return;
  }
  kernels_of(kernels.attention, as).store(key, dims, wide, page.scale(slot), page.minimum(slot));
  if (kv_coded(as)) {
    spread_key_codes(reinterpret_cast<const std::uint8_t*>(wide), dims, slot, page.numbers);
  } else if (number_bytes(as) == sizeof(float)) {
    spread_key(wide, dims, slot, page.numbers);
  } else {
    spread_key(reinterpret_cast<const std::uint16_t*>(wide), dims, slot, page.numbers);
  }
}

void store_value(const StoreKernels& kernels, KvType type, const float* value, int dims,
                 std::int64_t slot, const HeadPage& page) {
  const KvType as = written_type(type);
  if (kv_packed(as)) return encode_value(kernels.packed, kv_scheme(as), value, dims, slot, page);
  std::byte* at = page.numbers + static_cast<std::size_t>(slot * dims) * number_bytes(as);
  kernels_of(kernels.attention, as).store(value, dims, at, page.scale(slot), page.minimum(slot));
}

// Encodes each channel of a block and stores its codes in the layout of 16 interleaved keys.
void quantize_keys(const StoreKernels& kernels, const KvBlockWork& work, const HeadPage& copy,
                   const HeadPage& page, float* wide) {
  const KvScheme& scheme = kv_scheme(work.type);
  kernels_of(kernels.attention, KvType::f16)
      .widen(copy.numbers, std::int64_t{kPageTokens} * work.dims, wide);
  std::array<float, kPageTokens> channel;
  std::array<std::uint8_t, kPageTokens> codes;
  for (int first = work.first; first < work.last; first += scheme.block) {
    const int skipped = std::clamp(work.sinks - first, 0, scheme.block);
    const int ends = first / scheme.block * work.dims;
    for (int c = 0; c < work.dims; ++c) {
      for (int j = 0; j < scheme.block; j += kKeyBlock) {
        const float* from = wide + ((first + j) / kKeyBlock * work.dims + c) * kKeyBlock;
        std::copy_n(from, kKeyBlock, channel.data() + j);
      }
      kernels.packed.encode(channel.data(), scheme.block, skipped, scheme.bits, codes.data(),
                            page.scales + ends + c, page.minima + ends + c);
      for (int j = 0; j < scheme.block; j += kKeyBlock) {
        const CodePlace place = key_code_place(scheme.bits, work.dims, first + j, c);
        for (int i = 0; i < kKeyBlock; ++i) {
          put_code(scheme.bits, page.numbers, {place.byte + i, place.shift},
                   codes[static_cast<std::size_t>(j + i)]);
        }
      }
    }
  }
}

void quantize_values(const StoreKernels& kernels, const KvBlockWork& work, const HeadPage& copy,
                     const HeadPage& page, float* wide) {
  kernels_of(kernels.attention, KvType::f16)
      .widen(copy.numbers, std::int64_t{kPageTokens} * work.dims, wide);
  for (int slot = work.first; slot < work.last; ++slot) {
    encode_value(kernels.packed, kv_scheme(work.type), wide + std::int64_t{slot} * work.dims,
                 work.dims, slot, page);
  }
}

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
