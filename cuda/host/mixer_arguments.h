// Converts shapes of attention, Gated DeltaNet and short convolutions, and cache layers, to
// arguments of the kernels.
#pragma once

#include <span>

#include "backend/kv_types.h"
#include "backend/operations.h"
#include "cuda/host/staging.h"
#include "cuda/kernels/delta/delta.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

AttentionHeads heads_of(const AttentionShape& shape);
KvPages pages_of(const KvLayer& kv, KvPart part, const AttentionShape& shape);
KvCopied copied_of(const KvLayer& kv);
// The index of each page's f16 copy; empty if the cache has no copies.
std::span<const std::int32_t> copies_of(const KvLayer& kv);
// Sets all arguments except qkv, batch and fault.
RopeAppendArguments rope_append_arguments(const AttentionShape& shape, const RopeTable& rope,
                                          const KvLayer& kv);

// Computes rows of the rotary table up to position `end`, asynchronously on the stream.
void fill_rope(RopeTable& rope, std::int64_t end, Staging& staging, rt::Stream& stream);

// Selects the blocks of positions to quantize: those that were complete before the batch, or those
// that the batch completes. All layers have one KvResidual; other KV types take another launch.
enum class WholeBlocks : std::uint8_t { before_the_batch, by_the_batch };
void quantize_kv(const AttentionBatch& batch, const AttentionShape& shape,
                 std::span<const KvLayer> layers, WholeBlocks whole, rt::Stream& stream);

// Set all arguments except rows, batch, scratch and fault.
DeltaArguments delta_arguments(const DeltaShape& shape);
ShortConvArguments short_conv_arguments(const ShortConvShape& shape);

}  // namespace leq::LEQ_GPU
