// Where one kv head's keys and values lie inside a page of the CPU (docs/kv-cache.md):
//   keys [H_kv][4][d][16], int8 [H_kv][4][ceil4(d)/4][16][4]; values [H_kv][64][d];
//   int8 pages end with f16 scales [H_kv][64] and f16 minima [H_kv][64].
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/kv_types.h"

namespace leq::cpu {

// One kv head's part of a page. The scales and minima are there for codes only.
struct HeadPage {
  std::byte* numbers = nullptr;
  std::uint16_t* scales = nullptr;  // [64]
  std::uint16_t* minima = nullptr;  // [64]

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

inline std::size_t key_head_bytes(KvType type, int head_dim) {
  const int dims = kv_coded(type) ? (head_dim + 3) / 4 * 4 : head_dim;
  return static_cast<std::size_t>(kPageTokens) * static_cast<std::size_t>(dims) *
         number_bytes(type);
}

inline std::size_t value_head_bytes(KvType type, int head_dim) {
  return static_cast<std::size_t>(kPageTokens) * static_cast<std::size_t>(head_dim) *
         number_bytes(type);
}

inline std::size_t head_bytes(KvPart part, KvType type, int head_dim) {
  return part == KvPart::keys ? key_head_bytes(type, head_dim) : value_head_bytes(type, head_dim);
}

// With the scales and minima of all heads.
inline std::size_t page_bytes(KvType type, std::size_t head_bytes, int kv_heads) {
  const std::size_t ends = kv_coded(type) ? 2 * kPageTokens * sizeof(std::uint16_t) : 0;
  return static_cast<std::size_t>(kv_heads) * (head_bytes + ends);
}

inline HeadPage head_page(std::byte* page, KvType type, std::size_t head_bytes, int kv_heads,
                          int head) {
  const auto heads = static_cast<std::size_t>(kv_heads), index = static_cast<std::size_t>(head);
  HeadPage found{page + index * head_bytes, nullptr, nullptr};
  if (kv_coded(type)) {
    auto* scales = reinterpret_cast<std::uint16_t*>(page + heads * head_bytes);
    found.scales = scales + index * kPageTokens;
    found.minima = scales + (heads + index) * kPageTokens;
  }
  return found;
}

inline HeadPage key_head(const KvLayer& kv, std::int32_t page, int kv_heads, int head_dim,
                         int head) {
  return head_page(kv.keys + static_cast<std::size_t>(page) * kv.key_page_bytes, kv.key_type,
                   key_head_bytes(kv.key_type, head_dim), kv_heads, head);
}

inline HeadPage value_head(const KvLayer& kv, std::int32_t page, int kv_heads, int head_dim,
                           int head) {
  return head_page(kv.values + static_cast<std::size_t>(page) * kv.value_page_bytes, kv.value_type,
                   value_head_bytes(kv.value_type, head_dim), kv_heads, head);
}

}  // namespace leq::cpu
