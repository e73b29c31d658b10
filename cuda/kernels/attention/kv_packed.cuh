// The packed codes of one kv head in a page (cuda/layout/kv_codes.h), and the positions that are
// read as f16 copies instead.
#pragma once

#include "cuda/kernels/attention/kv_page.cuh"
#include "cuda/layout/kv_codes.h"

namespace leq::LEQ_GPU {

struct PackedHead {
  std::uint32_t* words = nullptr;
  std::uint16_t* scales = nullptr;  // [ends]: values [groups][64], keys [64 / block][d]
  std::uint16_t* minima = nullptr;

  // Returns the code of channel c at `slot` of the page.
  __device__ __forceinline__ float code(KvPart part, int dims, int slot, int c) const {
    const KvCodePlace at = kv_code_place(part, dims, slot, c);
    return static_cast<float>(words[at.word] >> at.shift & 15u);
  }
};

__device__ __forceinline__ PackedHead packed_head(const KvPages& pages, std::int64_t page,
                                                  const AttentionHeads& heads, int head) {
  std::byte* const base = pages.base + page * pages.page_bytes;
  const std::int64_t bytes = kv_code_bytes(heads.head_dim);
  auto* const ends = reinterpret_cast<std::uint16_t*>(base + heads.kv_heads * bytes);
  return {reinterpret_cast<std::uint32_t*>(base + head * bytes), ends + head * pages.codes.ends,
          ends + (heads.kv_heads + head) * pages.codes.ends};
}

// Returns the positions [first, last) that the query at `position` reads as codes; it reads others
// as f16 copies. If the type has no copies, all positions are read as codes.
struct CodedPositions {
  int first = 0, last = 0x7fffffff;

  __device__ __forceinline__ CodedPositions(const KvResidual& residual, int position) {
    if (!residual.copies()) return;
    first = residual.sinks;
    // The mask rounds down, because the block length is a power of two.
    last = max(position + 1 - residual.recent, 0) & -residual.block;
  }
  __device__ __forceinline__ bool holds(int j) const { return first <= j && j < last; }
};

}  // namespace leq::LEQ_GPU
