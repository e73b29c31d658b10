// Addresses of a position's key or value in device pages (layout.h), used by every kernel that
// reads or writes pages.
#pragma once

#include "cuda/intrinsics/ptx.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {

// Looks up a type that is known at run time in the table of schemes (backend/kv_types.h). The rows
// are compared one by one, because device code cannot index the table.
template <std::size_t row = 0>
constexpr int stored_number_bytes(KvType type) {
  constexpr KvType kType = kKvSchemes[row].type;
  constexpr int kBytes = kKvSchemes[row].bits / 8;
  if constexpr (row + 1 == kUnpackedKvTypes) {
    return kBytes;
  } else {
    return type == kType ? kBytes : stored_number_bytes<row + 1>(type);
  }
}
template <std::size_t row = 0>
constexpr bool stored_coded(KvType type) {
  constexpr KvType kType = kKvSchemes[row].type;
  constexpr bool kCoded = kKvSchemes[row].coded();
  if constexpr (row + 1 == kUnpackedKvTypes) {
    return kCoded && type == kType;
  } else {
    return (kCoded && type == kType) || stored_coded<row + 1>(type);
  }
}

// One kv head in a page. Scales and minima only exist for codes.
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
  found.row_bytes = kv_row_bytes(heads.head_dim, stored_number_bytes(pages.type));
  found.numbers = base + head * kKvPageTokens * found.row_bytes;
  if (stored_coded(pages.type)) {
    auto* ends =
        reinterpret_cast<std::uint16_t*>(base + heads.kv_heads * kKvPageTokens * found.row_bytes);
    found.scales = ends + head * kKvPageTokens;
    found.minima = ends + (heads.kv_heads + head) * kKvPageTokens;
  }
  return found;
}

}  // namespace leq::LEQ_GPU
