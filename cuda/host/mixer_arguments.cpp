#include "cuda/host/mixer_arguments.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/layout/kv_codes.h"

namespace leq::LEQ_GPU {

AttentionHeads heads_of(const AttentionShape& shape) {
  return {shape.heads,        shape.kv_heads,   shape.head_dim,    shape.window,
          query_group(shape), shape.first_head, shape.sink_logits, shape.both_ways};
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
  if (shape.v_norm != nullptr) {
    a.v_gain = shape.v_norm->gain;
    a.v_eps = shape.v_norm->eps;
  }
  if (shape.rotary) {
    a.table = reinterpret_cast<const float*>(rope.memory.data());
    a.rotary_dims = rotary_dims(shape);
  }
  a.key_offset = shape.key_offset;
  a.queries_only = shape.queries_only;
  a.query_scale = shape.query_scale;
  if (shape.tempered) {
    a.query_factors = reinterpret_cast<const float*>(rope.query_factors.data());
    a.query_period = static_cast<int>(rope.query_period);
  }
  a.keys = pages_of(kv, KvPart::keys, shape);
  a.values = pages_of(kv, KvPart::values, shape);
  a.copied = copied_of(kv);
  return a;
}

void fill_rope(RopeTable& rope, std::int64_t end, Staging& staging, rt::Stream& stream) {
  constexpr std::int64_t kPositions = 256;  // positions per upload
  const auto numbers = static_cast<std::int64_t>(2 * rope.inv_freq.size());
  while (rope.filled < end) {
    const std::int64_t count = std::min(kPositions, rope.context - rope.filled);
    std::vector<float> rows(static_cast<std::size_t>(count * numbers));
    fill_rope_rows(rope, rope.filled, count, rows.data());
    auto* table = reinterpret_cast<float*>(rope.memory.data());
    rt::copy_on_device(table + rope.filled * numbers, staging.push(rows),
                       rows.size() * sizeof(float), stream);
    rope.filled += count;
  }
}

void quantize_kv(const AttentionBatch& batch, const AttentionShape& shape,
                 std::span<const KvLayer> layers, WholeBlocks whole, rt::Stream& stream) {
  KvQuantizeArguments a = {batch, heads_of(shape)};
  a.copied = copied_of(layers[0]);
  a.whole_before = whole == WholeBlocks::before_the_batch;
  const auto launch = [&] {
    launch_kv_quantize(a, stream);
    a.layer_count = 0;
  };
  for (const KvLayer& kv : layers) {
    const bool keys = kv_scheme(kv.key_type).blocked();
    const bool values = kv_scheme(kv.value_type).blocked();
    const bool other =
        (keys && a.keys.type != kv.key_type) || (values && a.values.type != kv.value_type);
    if (other || a.layer_count == static_cast<int>(kQuantizedLayers)) launch();
    if (keys) a.keys = pages_of(kv, KvPart::keys, shape);
    if (values) a.values = pages_of(kv, KvPart::values, shape);
    if (!keys && !values) continue;
    a.layers[static_cast<std::size_t>(a.layer_count++)] = {
        keys ? kv.keys : nullptr, values ? kv.values : nullptr, kv.key_copies, kv.value_copies};
  }
  launch();
}

DeltaArguments delta_arguments(const DeltaShape& shape) {
  constexpr float kL2Eps = 1e-6f;
  // l2(x) is expressed as an RMS norm: x / sqrt(mean + eps / d) / sqrt(d); queries have another
  // factor 1 / sqrt(d).
  const auto gain = [&](int roots) {
    return static_cast<float>(std::pow(static_cast<double>(shape.key_dim), -0.5 * roots));
  };
  DeltaArguments a;
  a.key_heads = shape.key_heads;
  a.value_heads = shape.value_heads;
  a.key_dim = shape.key_dim;
  a.value_dim = shape.value_dim;
  a.taps = shape.taps;
  const DeltaShape all = shape.whole();
  const std::int64_t first_key = std::int64_t{shape.first_key_head} * shape.key_dim;
  const int first_value = shape.first_value_head();
  a.gate_stride = all.value_heads;
  a.conv[0] = shape.conv + first_key;
  a.conv[1] = a.conv[0] + all.keys();
  a.conv[2] = shape.conv + 2 * all.keys() + std::int64_t{first_value} * shape.value_dim;
  a.conv_stride = all.channels();
  a.a_log = shape.a_log + first_value;
  a.dt_bias = shape.dt_bias + first_value;
  a.norm_gain = shape.norm.gain;
  a.norm_eps = shape.norm.eps;
  a.l2_eps = kL2Eps / static_cast<float>(shape.key_dim);
  a.query_gain = gain(2);
  a.key_gain = gain(1);
  a.state_at = static_cast<std::int64_t>(shape.state_at);
  return a;
}

ShortConvArguments short_conv_arguments(const ShortConvShape& shape) {
  ShortConvArguments a;
  a.channels = shape.channels;
  a.taps = shape.taps;
  a.conv = shape.conv;
  a.conv_stride = shape.conv_stride;
  a.state_at = static_cast<std::int64_t>(shape.state_at);
  return a;
}

}  // namespace leq::LEQ_GPU
