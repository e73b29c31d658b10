// Pages of keys and values on the CPU: their layout, storing by token or as f16 copies whose blocks
// are quantized after they have been closed, and the portable order of saved sequences.
// Layout of one kv head's keys and values in a page (docs/kv-cache.md):
// keys [H_kv][4][d][16], int8 [H_kv][4][ceil4(d)/4][16][4]; values [H_kv][64][d];
// int8 pages end with f16 scales [H_kv][64] and f16 minima [H_kv][64].
// Packed codes of b bits: keys [H_kv][64 / P][d][16 bytes] with P = 128 / b, where byte i has
// keys i, i + 16, ... of the P, lowest bits first; values [H_kv][64][ceil16(d) / 16][2 b bytes],
// where 2-bit channel i of the 16 has bits 2 i and 2 i + 1, and 4-bit channel i is digit i / 2 of
// 32-bit word i % 2, so that one shift per lane extracts channel i. f16 scales and minima are at
// the end: along channels [H_kv][64 / block][d], along tokens [H_kv][groups][64].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/kernels/kernels.h"
#include "backend/kv_types.h"

namespace leq::cpu {

// One kv head's part of a page. Only codes have scales and minima.
struct HeadPage {
  std::byte* numbers = nullptr;
  std::uint16_t* scales = nullptr;  // [64]; packed: see above
  std::uint16_t* minima = nullptr;

  std::uint16_t* scale(std::int64_t slot) const {
    return scales == nullptr ? nullptr : scales + slot;
  }
  std::uint16_t* minimum(std::int64_t slot) const {
    return minima == nullptr ? nullptr : minima + slot;
  }
};

inline std::size_t number_bytes(KvType type) {
  return static_cast<std::size_t>(kv_scheme(type).bits) / 8;
}

// The position of a packed code: its byte, and its shift within that byte.
struct CodePlace {
  std::int64_t byte = 0;
  int shift = 0;
};

// Bytes of the packed values of one position.
inline std::int64_t value_row_bytes(int bits, int head_dim) {
  return std::int64_t{(head_dim + 15) / 16} * 2 * bits;
}

// The place of dimension c of the key (or of the value) at `slot` of a page.
inline CodePlace key_code_place(int bits, int head_dim, int slot, int c) {
  const int in_unit = slot % (128 / bits);
  const std::int64_t row = std::int64_t{slot / (128 / bits)} * head_dim + c;
  return {row * 16 + in_unit % 16, in_unit / 16 * bits};
}
inline CodePlace value_code_place(int bits, int head_dim, int slot, int c) {
  const int i = c % 16;
  const std::int64_t first = slot * value_row_bytes(bits, head_dim) + c / 16 * 2 * bits;
  if (bits == 4) return {first + i % 2 * 4 + i / 4, i / 2 % 2 * 4};
  return {first + i * bits / 8, i * bits % 8};
}

inline std::size_t key_head_bytes(KvType type, int head_dim) {
  if (kv_packed(type)) {
    return static_cast<std::size_t>(kPageTokens * head_dim * kv_scheme(type).bits / 8);
  }
  const int dims = kv_coded(type) ? (head_dim + 3) / 4 * 4 : head_dim;
  return static_cast<std::size_t>(kPageTokens) * static_cast<std::size_t>(dims) *
         number_bytes(type);
}

inline std::size_t value_head_bytes(KvType type, int head_dim) {
  if (kv_packed(type)) {
    return static_cast<std::size_t>(kPageTokens * value_row_bytes(kv_scheme(type).bits, head_dim));
  }
  return static_cast<std::size_t>(kPageTokens) * static_cast<std::size_t>(head_dim) *
         number_bytes(type);
}

inline std::size_t head_bytes(KvPart part, KvType type, int head_dim) {
  return part == KvPart::keys ? key_head_bytes(type, head_dim) : value_head_bytes(type, head_dim);
}

// The number of scales of one head in a page; there are as many minima.
inline std::size_t end_count(KvPart part, KvType type, int head_dim) {
  return kv_scale_count(kv_scheme(type), part, head_dim, kPageTokens);
}

// Bytes of a whole page, including the scales and minima of all heads.
inline std::size_t page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) {
  const std::size_t ends = 2 * end_count(part, type, head_dim) * sizeof(std::uint16_t);
  return static_cast<std::size_t>(kv_heads) * (head_bytes(part, type, head_dim) + ends);
}

inline HeadPage head_page(std::byte* page, KvPart part, KvType type, int kv_heads, int head_dim,
                          int head) {
  const auto heads = static_cast<std::size_t>(kv_heads), index = static_cast<std::size_t>(head);
  const std::size_t bytes = head_bytes(part, type, head_dim);
  HeadPage found{page + index * bytes, nullptr, nullptr};
  if (kv_coded(type)) {
    const std::size_t ends = end_count(part, type, head_dim);
    auto* scales = reinterpret_cast<std::uint16_t*>(page + heads * bytes);
    found.scales = scales + index * ends;
    found.minima = scales + (heads + index) * ends;
  }
  return found;
}

inline HeadPage key_head(const KvLayer& kv, std::int32_t page, int kv_heads, int head_dim,
                         int head) {
  const auto place = static_cast<std::size_t>(kv.place(page));
  return head_page(kv.keys + place * kv.key_page_bytes, KvPart::keys, kv.key_type, kv_heads,
                   head_dim, head);
}

inline HeadPage value_head(const KvLayer& kv, std::int32_t page, int kv_heads, int head_dim,
                           int head) {
  const auto place = static_cast<std::size_t>(kv.place(page));
  return head_page(kv.values + place * kv.value_page_bytes, KvPart::values, kv.value_type, kv_heads,
                   head_dim, head);
}

// One kv head's part of the f16 copy of a page; the page must have a copy.
inline HeadPage copied_head(const KvLayer& kv, KvPart part, std::int32_t page, int kv_heads,
                            int head_dim, int head) {
  std::byte* const copies = part == KvPart::keys ? kv.key_copies : kv.value_copies;
  const auto copy = static_cast<std::size_t>(kv.copies[static_cast<std::size_t>(page)]);
  return head_page(copies + copy * kv.copy_page_bytes, part, KvType::f16, kv_heads, head_dim, head);
}

struct StoreKernels {
  const AttentionKernels& attention;
  const PackedKernels& packed;
};

// Store one position of one kv head in `slot` of its page. For schemes that quantize whole blocks,
// `page` is the page of f16 copies. `wide` is scratch of d floats.
void store_key(const StoreKernels& kernels, KvType type, const float* key, int dims,
               std::int64_t slot, const HeadPage& page, float* wide);
void store_value(const StoreKernels& kernels, KvType type, const float* value, int dims,
                 std::int64_t slot, const HeadPage& page);

// Quantizes slots [first, last) of a page, which are whole blocks, from the page's f16 copies. The
// scales of keys do not include the first `sinks` slots. `wide` is scratch of 64 d floats.
struct KvBlockWork {
  KvType type = KvType::simq4;
  int dims = 0;
  int first = 0, last = 0;
  int sinks = 0;
};
void quantize_keys(const StoreKernels& kernels, const KvBlockWork& work, const HeadPage& copy,
                   const HeadPage& page, float* wide);
void quantize_values(const StoreKernels& kernels, const KvBlockWork& work, const HeadPage& copy,
                     const HeadPage& page, float* wide);

}  // namespace leq::cpu
