// Attention over a paged cache on the CPU: rotation and appending, then softmax(q k^T) v by spans
// of 512 positions (docs/numerics.md). Work is divided into (block of rows) x (a few kv heads) and,
// for few rows, also into spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/fetch.h"
#include "base/thread_pool.h"

namespace leq::cpu {

struct AttentionContext {
  ThreadPool& pool;
  const RowKernels& rows;
  const AttentionKernels& kernels;
  const PackedKernels& packed;
  std::span<std::byte> scratch;  // attention_scratch_bytes, 64-byte aligned
  Fetch fetch = Fetch::twice;    // best_fetch(), for sequential reads
};

// Bytes of scratch for batches of at most `tokens` rows at positions below `context`.
std::size_t attention_scratch_bytes(int threads, std::int64_t tokens, const AttentionShape& shape,
                                    std::int64_t context);

// Operations::quantize_kv_blocks, rope_append and attention. They throw Error for a row that is not
// finite, for positions beyond the table or the pages, and if the scratch is too small.
void quantize_kv_blocks(const AttentionContext& context, const BatchView& batch,
                        const AttentionShape& shape, std::span<const KvLayer> layers);
void rope_append(const AttentionContext& context, Rows& qkv, const BatchView& batch,
                 const AttentionShape& shape, RopeTable& rope, const KvLayer& kv);
void attention(const AttentionContext& context, const Rows& qkv, const BatchView& batch,
               const AttentionShape& shape, const KvLayer& kv, const RowsFor& out);

}  // namespace leq::cpu
