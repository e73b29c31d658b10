// Where a position's key or value lies in device pages (layout.h), for every kernel that reads or
// writes them.
#pragma once

#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "cuda/words/ptx.h"

namespace leq::LEQ_GPU {

__device__ __forceinline__ int kv_number_bytes(KvNumbers type) {
  return type == KvNumbers::f32 ? 4 : type == KvNumbers::f16 ? 2 : 1;
}

// One kv head in one page. Scales and minima are there for int8 only.
struct KvHeadPage {
  std::byte* numbers = nullptr;     // [64][row_bytes]
  std::uint16_t* scales = nullptr;  // [64]
  std::uint16_t* minima = nullptr;  // [64]
  std::int64_t row_bytes = 0;
};

__device__ __forceinline__ KvHeadPage kv_head_page(const KvPages& pages, std::int64_t page,
                                                   const AttentionHeads& heads, int head) {
  std::byte* const base = pages.base + page * pages.page_bytes;
  KvHeadPage found;
  found.row_bytes = kv_row_bytes(heads.head_dim, kv_number_bytes(pages.type));
  found.numbers = base + head * kKvPageTokens * found.row_bytes;
  if (pages.type == KvNumbers::int8) {
    auto* ends =
        reinterpret_cast<std::uint16_t*>(base + heads.kv_heads * kKvPageTokens * found.row_bytes);
    found.scales = ends + head * kKvPageTokens;
    found.minima = ends + (heads.kv_heads + head) * kKvPageTokens;
  }
  return found;
}

// Number c of position `slot` as stored: a float, or an int8 code as a float.
__device__ __forceinline__ float kv_number(const KvHeadPage& page, KvNumbers type, int slot,
                                           int c) {
  const std::byte* row = page.numbers + slot * page.row_bytes;
  if (type == KvNumbers::f32) return reinterpret_cast<const float*>(row)[c];
  if (type == KvNumbers::f16) {
    return ptx::f16_to_f32(reinterpret_cast<const std::uint16_t*>(row)[c]);
  }
  return static_cast<float>(reinterpret_cast<const std::uint8_t*>(row)[c]);
}

}  // namespace leq::LEQ_GPU
