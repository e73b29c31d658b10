#include "backend/cpu/attention/kv_pages.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace leq::cpu {
namespace {

// Every type has kernels: an unpacked one in AttentionKernels::kv, a packed one in PackedKernels.
static_assert(std::extent_v<decltype(AttentionKernels::kv)> == kUnpackedKvTypes);
static_assert(std::ranges::all_of(kKvSchemes, [](const KvScheme& scheme) {
  return !scheme.packed || scheme.bits == 8 || scheme.bits == 4 || scheme.bits == 2;
}));

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
  std::array<std::uint8_t, kMaxDims> codes;
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

}  // namespace leq::cpu
