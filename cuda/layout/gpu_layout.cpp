#include "cuda/layout/gpu_layout.h"

#include <algorithm>

#include "backend/layout.h"
#include "base/error.h"
#include "cuda/layout/attention_scratch.h"
#include "cuda/layout/delta_scratch.h"
#include "cuda/layout/exchange_window.h"
#include "cuda/layout/kv_codes.h"
#include "cuda/layout/layout.h"
#include "cuda/layout/weight_bytes.h"

namespace leq::gpu {
namespace {

constexpr std::int64_t kTermBytes = sizeof(std::uint16_t);

// An f32 input is split into three terms of bf16 or two of f16; for f32 weights it is not split.
int terms_of(const WeightView& weight) {
  require(!weight.scheme.has_table(), "weights of type ", scheme_name(weight.scheme),
          " with f32 inputs run on the CPU alone; use ", Setting{"act"}, " g128");
  if (weight.scheme.kind == CodeKind::f32) return 0;
  return weight.scheme.kind == CodeKind::bf16 ? 3 : 2;
}

// Returns whether a linear belongs to a routed expert; those of a shared expert are ordinary.
bool is_expert(const Linear& linear) { return linear.name.find(".experts.") != std::string::npos; }

// Excludes int4, which loses twenty times as much as simq4, simq8, which is as large as int8, and
// simq2, which is for short contexts.
bool runs_on_gpus(KvType type) {
  const KvScheme& scheme = kv_scheme(type);
  return !scheme.packed || type == KvType::simq4;
}

}  // namespace

std::size_t kv_page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) {
  const int bits = kv_scheme(type).bits;
  const std::int64_t numbers =
      kv_packed(type) ? kv_code_bytes(head_dim) : kPageTokens * kv_row_bytes(head_dim, bits / 8);
  const auto ends =
      2 * sizeof(std::uint16_t) * static_cast<std::size_t>(kv_ends(part, type, head_dim));
  return static_cast<std::size_t>(kv_heads) * (static_cast<std::size_t>(numbers) + ends);
}

GpuLayout::GpuLayout(Arithmetic arithmetic) : Layout(kBlockUnit), arithmetic_(arithmetic) {}

RowsFormat GpuLayout::format_for(const Linear& consumer) const {
  const RowsFormat format = rows_format(consumer, terms_of);
  const QuantScheme& scheme = consumer.segments[0].weight.scheme;
  const bool by_row = is_coded(format.act) && !has_stored_scale(format.act) && !scheme.is_super();
  require(by_row || !is_expert(consumer), ErrorKind::bad_setting, Setting{"device"}, ": ",
          consumer.name, ": experts with weights of type ", scheme_name(scheme), " and act ",
          act_name(consumer.act), " run on the CPU only; quantize with ", Setting{"type"},
          " int8 or another integer type and ", Setting{"act"}, " g128, or use ", Setting{"device"},
          " cpu");
  require(is_coded(format.act) || !(scheme.is_super() || scheme.has_table()),
          ErrorKind::bad_setting, Setting{"device"}, ": ", consumer.name, ": ", scheme_name(scheme),
          " weights with act none run on the CPU only; quantize with ", Setting{"act"},
          " g128, or use ", Setting{"device"}, " cpu");
  require(format.terms == 0 || arithmetic_ != Arithmetic::exact, ErrorKind::bad_setting,
          Setting{"exact"}, ": ", consumer.name, ": ",
          scheme_name(consumer.segments[0].weight.scheme),
          " weights with f32 inputs are multiplied",
          " on tensor cores, near the CPU's numbers and not equal; quantize with ", Setting{"type"},
          " int8 or another integer type and quantized activations, or leave ", Setting{"exact"},
          " out");
  return format;
}

RowsLayout GpuLayout::rows(std::int64_t capacity, std::int64_t width,
                           const RowsFormat& format) const {
  const std::int64_t code_bytes = format.terms > 0 ? format.terms * kTermBytes : 1;
  return rows_layout(capacity, width, format,
                     {float_stride(width), padded_columns(width) * code_bytes, kBlockUnit});
}

std::size_t GpuLayout::weight_bytes(const WeightView& weight) const {
  return gpu::weight_bytes(weight).bytes;
}

std::size_t GpuLayout::page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) const {
  require(runs_on_gpus(type), ErrorKind::bad_setting,
          Setting{part == KvPart::keys ? "key_type" : "value_type"}, " ", kv_type_name(type),
          ": runs on the CPU only; use int8 or simq4, which are nearer to f16, or ",
          Setting{"device"}, " cpu");
  return kv_page_bytes(part, type, kv_heads, head_dim);
}

std::size_t GpuLayout::scratch_bytes(std::int64_t tokens, const AttentionShape& shape,
                                     std::int64_t context) const {
  return std::max(
      attention_scratch_bytes(tokens, shape.heads, shape.kv_heads, shape.head_dim, context),
      step_scratch_bytes(tokens));
}

// The scratch is for the rows of a step and for the chunks of prompts.
std::size_t GpuLayout::delta_scratch_bytes(std::int64_t tokens, const DeltaShape& shape) const {
  require(shape.key_dim <= kDeltaKeyDims, ErrorKind::bad_setting, Setting{"device"},
          ": Gated DeltaNet with keys of ", shape.key_dim, " numbers, a GPU takes up to ",
          kDeltaKeyDims, "; use ", Setting{"device"}, " cpu");
  std::int64_t numbers = delta_rows_numbers(tokens, shape.channels(), shape.value_heads);
  if (arithmetic_ != Arithmetic::exact && tokens >= kDeltaChunk) {
    numbers += delta_chunks_numbers(tokens, shape.value_heads);
  }
  return static_cast<std::size_t>(numbers) * sizeof(float);
}

std::size_t GpuLayout::exchange_bytes(std::int64_t rows, std::int64_t row_bytes) const {
  return gpu::exchange_bytes(rows, row_bytes);
}

}  // namespace leq::gpu
