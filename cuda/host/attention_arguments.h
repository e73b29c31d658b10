// Shapes and cache layers as the kernels of attention want to see them.
#pragma once

#include <span>

#include "backend/decoder_parts.h"
#include "backend/kv_types.h"
#include "backend/tables.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

AttentionHeads heads_of(const AttentionShape& shape);
KvPages pages_of(const KvLayer& kv, KvPart part, const AttentionShape& shape);
KvCopied copied_of(const KvLayer& kv);
// f16 copies of the pages that have some; empty: there are none.
std::span<const std::int32_t> copies_of(const KvLayer& kv);
// All but qkv, batch and fault.
RopeAppendArguments rope_append_arguments(const AttentionShape& shape, const RopeTable& rope,
                                          const KvLayer& kv);

}  // namespace leq::LEQ_GPU
