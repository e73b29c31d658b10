#include "cuda/host/attention_arguments.h"

#include "cuda/layout/kv_codes.h"

namespace leq::LEQ_GPU {

AttentionHeads heads_of(const AttentionShape& shape) {
  return {shape.heads,  shape.kv_heads,     shape.head_dim,
          shape.window, query_group(shape), shape.first_head};
}

KvPages pages_of(const KvLayer& kv, KvPart part, const AttentionShape& shape) {
  const bool keys = part == KvPart::keys;
  const KvType type = keys ? kv.key_type : kv.value_type;
  return {keys ? kv.keys : kv.values,
          static_cast<std::int64_t>(keys ? kv.key_page_bytes : kv.value_page_bytes), type,
          codes_of(part, type, shape.head_dim)};
}

KvCopied copied_of(const KvLayer& kv) {
  const auto bytes = static_cast<std::int64_t>(kv.copy_page_bytes);
  return {{kv.key_copies, bytes, KvType::f16}, {kv.value_copies, bytes, KvType::f16}, kv.residual};
}

std::span<const std::int32_t> copies_of(const KvLayer& kv) {
  return kv.residual.copies() ? kv.copies : std::span<const std::int32_t>();
}

RopeAppendArguments rope_append_arguments(const AttentionShape& shape, const RopeTable& rope,
                                          const KvLayer& kv) {
  RopeAppendArguments a;
  a.heads = heads_of(shape);
  if (shape.q_norm != nullptr) {
    a.q_gain = shape.q_norm->gain;
    a.q_eps = shape.q_norm->eps;
  }
  if (shape.k_norm != nullptr) {
    a.k_gain = shape.k_norm->gain;
    a.k_eps = shape.k_norm->eps;
  }
  if (shape.rotary) {
    a.table = reinterpret_cast<const float*>(rope.memory.data());
    a.rotary_dims = rotary_dims(shape);
  }
  a.key_offset = shape.key_offset;
  if (shape.tempered) {
    a.query_factors = reinterpret_cast<const float*>(rope.query_factors.data());
    a.query_period = static_cast<int>(rope.query_period);
  }
  a.keys = pages_of(kv, KvPart::keys, shape);
  a.values = pages_of(kv, KvPart::values, shape);
  a.copied = copied_of(kv);
  return a;
}

}  // namespace leq::LEQ_GPU
