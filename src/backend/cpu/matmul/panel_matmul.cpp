#include "backend/cpu/matmul/panel_matmul.h"

#include <algorithm>

#include "backend/checks.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/error.h"
#include "base/prefetch.h"
#include "tensor/pack.h"
#include "tensor/super_blocks.h"
#include "tensor/table_codes.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kLanes = 16;
// For weight-only matmuls: the columns of a panel that are dequantized at a time, and the tokens
// whose lanes are kept in scratch.
constexpr std::int64_t kDequantColumns = 256;
constexpr std::int64_t kDequantTokens = 16;
static_assert(kPanelRows * kDequantColumns * sizeof(float) +
                  kDequantTokens * kPanelRows * kLanes * sizeof(float) <=
              kPanelScratchBytes);
static_assert(kSuperScratchBytes <= kPanelScratchBytes);

std::int64_t panel_outputs(const PanelTask& task) {
  return std::min(kPanelRows, task.segment->weight.rows - task.panel * kPanelRows);
}

// The bias of a panel's 64 outputs, or null. It is used in place, except for a partial last panel,
// whose bias is copied to `buffer` and padded with 0.
const float* panel_bias(const PanelTask& task, float (&buffer)[kPanelRows]) {
  if (task.segment->bias == nullptr) return nullptr;
  const float* bias = task.segment->bias + task.panel * kPanelRows;
  const std::int64_t outputs = panel_outputs(task);
  if (outputs == kPanelRows) return bias;
  std::fill(std::copy_n(bias, outputs, buffer), buffer + kPanelRows, 0.0f);
  return buffer;
}

const std::uint8_t* panel_plane(const WeightView& weight, std::int64_t panel, int bits) {
  return reinterpret_cast<const std::uint8_t*>(weight.codes) +
         panel_byte(bits, weight.padded_columns(), panel * kPanelRows, 0);
}

const std::uint16_t* panel_group_scales(const WeightView& weight, std::int64_t panel) {
  const std::int64_t groups = weight.padded_columns() / weight.scheme.group;
  const std::int64_t bytes = weight.scheme.has_byte_scales() ? 1 : 2;
  return reinterpret_cast<const std::uint16_t*>(static_cast<const std::byte*>(weight.scales) +
                                                panel * groups * kPanelRows * bytes);
}

bool grouped(const WeightView& weight) { return weight.scheme.scaling == Scaling::group; }

// Columns of one int32 sum; 0 if neither side has groups.
std::int64_t int_group(const WeightView& weight) {
  const std::int64_t by_weight = grouped(weight) ? weight.scheme.group : 0;
  const std::int64_t by_token = scale_columns(weight.act);
  if (by_token == 0) return by_weight;
  return by_weight == 0 ? by_token : std::min(by_weight, by_token);
}

// Sets the addresses of the panel's codes, and of the sums or zero points that correct them.
void point_at_codes(const PanelTask& task, IntPanel& panel) {
  const WeightView& weight = task.segment->weight;
  const CodePlanes planes = code_planes(weight);
  panel.codes = panel_plane(weight, task.panel, planes.low_bits);
  if (planes.high_bits > 0) {
    panel.high_codes = panel_plane(weight, task.panel, planes.high_bits) + planes.high_at;
  }
  if (!weight.scheme.is_offset()) {
    if (panel.group == 0) {
      panel.row_sums = static_cast<const std::int32_t*>(weight.sums) + task.panel * kPanelRows;
    } else {
      const std::int64_t groups = weight.padded_columns() / panel.group;
      panel.group_sums =
          static_cast<const std::int16_t*>(weight.sums) + task.panel * groups * kPanelRows;
    }
    return;
  }
  panel.zero = weight.scheme.bias();
  if (weight.scheme.has_table()) {
    panel.table = kernel_table(weight.scheme.kind).data();
    panel.zero = table_zero(weight.scheme.kind);
  }
  if (weight.scheme.kind == CodeKind::uint_) {
    const std::int64_t groups = grouped(weight) ? weight.padded_columns() / weight.scheme.group : 1;
    panel.zeros = weight.zeros + task.panel * groups * kPanelRows;
    panel.zero_stride = grouped(weight) ? kPanelRows : 0;
  }
  panel.token_sums = task.x->sums + task.token * task.x->sum_stride;
  panel.token_sum_stride = task.x->sum_stride;
}

void point_at_next(const PanelTask& task, IntPanel& panel) {
  if (task.next_segment == nullptr) return;
  const WeightView& weight = task.next_segment->weight;
  const int bits = code_planes(weight).low_bits;
  panel.next_codes = panel_plane(weight, task.next_panel, bits);
  panel.next_bytes = kPanelRows * weight.columns * bits / 8;
}

// With one token a panel takes a few microseconds. Without these prefetches, one microsecond was
// spent waiting for start values of sums, scales and the lines of results. (A panel with more
// tokens takes longer, and its kernels prefetch these data themselves.)
void fetch_ends(const PanelTask& task, const IntPanel& panel) {
  if (panel.row_scales != nullptr) prefetch<3>(panel.row_scales, kPanelRows * sizeof(float));
  for (std::int64_t i = 0; i < kPanelRows; i += 16) __builtin_prefetch(panel.y + i, 1);
  if (task.next_segment == nullptr) return;
  const WeightView& next = task.next_segment->weight;
  if (next.sums != nullptr && int_group(next) == 0) {
    prefetch<3>(static_cast<const std::int32_t*>(next.sums) + task.next_panel * kPanelRows,
                kPanelRows * sizeof(std::int32_t));
  }
}

void run_kernel(const MatmulKernels& kernels, const QuantScheme& scheme, const IntPanel& panel) {
  if (scheme.has_table()) return kernels.table4(panel);
  switch (scheme.bits) {
    case 2:
      return kernels.bits2(panel);
    case 3:
      return kernels.bits3(panel);
    case 4:
      return kernels.bits4(panel);
    default:  // 8, as check_inputs has found
      break;
  }
  if (scheme.kind == CodeKind::uint_) {
    return (panel.group == 0 ? kernels.uint8_rows : kernels.uint8_groups)(panel);
  }
  (panel.group == 0 ? kernels.int8_rows : kernels.int8_groups)(panel);
}

// Multiplies codes under superblock scales by integer inputs.
void multiply_super(const MatmulKernels& kernels, const PanelTask& task) noexcept {
  const WeightView& weight = task.segment->weight;
  const SuperLayout layout = super_layout(weight.scheme.kind);
  const CodePlanes planes = code_planes(weight);
  const std::int64_t columns = weight.padded_columns();
  const Rows& x = *task.x;
  float bias_values[kPanelRows];
  SuperPanel panel;
  panel.bits = weight.scheme.bits;
  panel.codes = panel_plane(weight, task.panel, planes.low_bits);
  if (planes.high_bits > 0) {
    panel.high_codes = panel_plane(weight, task.panel, planes.high_bits) + planes.high_at;
  }
  panel.super_scales = static_cast<const std::uint16_t*>(weight.scales) +
                       task.panel * layout.super_blocks(columns) * layout.supers * kPanelRows;
  panel.sub_scales =
      weight.zeros + task.panel * layout.sub_blocks(columns) * layout.subs * kPanelRows;
  panel.bias = panel_bias(task, bias_values);
  panel.columns = weight.columns;
  panel.tokens = task.tokens;
  panel.inputs = x.codes + task.token * x.code_stride;
  panel.input_stride = x.code_stride;
  panel.token_scales = x.scales + task.token * x.scale_stride;
  panel.token_scale_stride = x.scale_stride;
  panel.scale_by_span = scale_columns(weight.act) > 0;
  if (panel.scale_by_span) panel.span = std::min<std::int64_t>(scale_columns(weight.act), 128);
  panel.token_sums = x.sums + task.token * x.sum_stride;
  panel.token_sum_stride = x.sum_stride;
  panel.y = task.y;
  panel.y_stride = task.y_stride;
  panel.scratch = task.scratch;
  kernels.super(panel);
}

void multiply_ints(const MatmulKernels& kernels, const PanelTask& task) noexcept {
  const WeightView& weight = task.segment->weight;
  const Rows& x = *task.x;
  float bias_values[kPanelRows];
  IntPanel panel;
  panel.group = static_cast<int>(int_group(weight));
  point_at_codes(task, panel);
  point_at_next(task, panel);
  if (grouped(weight)) {
    panel.group_scales = panel_group_scales(weight, task.panel);
    panel.byte_scales = weight.scheme.has_byte_scales();
    panel.scale_mul = weight.scale_mul;
  } else {
    panel.row_scales = static_cast<const float*>(weight.scales) + task.panel * kPanelRows;
  }
  panel.bias = panel_bias(task, bias_values);
  panel.columns = (weight.columns + 15) / 16 * 16;
  panel.groups_a_token_scale =
      scale_columns(weight.act) > 0 ? scale_columns(weight.act) / panel.group : 0;
  panel.tokens = task.tokens;
  panel.inputs = x.codes + task.token * x.code_stride;
  panel.input_stride = x.code_stride;
  panel.token_scales = x.scales + task.token * x.scale_stride;
  panel.token_scale_stride = x.scale_stride;
  panel.y = task.y;
  panel.y_stride = task.y_stride;
  panel.scratch = task.scratch;
  panel.fetch = task.fetch;
  if (task.tokens == 1) fetch_ends(task, panel);
  run_kernel(kernels, weight.scheme, panel);
}

void multiply_floats(const MatmulKernels& kernels, const PanelTask& task) noexcept {
  const WeightView& weight = task.segment->weight;
  const CodeKind kind = weight.scheme.kind;
  const std::int64_t first = task.panel * kPanelRows;
  FloatBlock block;
  block.weights = weight.codes + first * weight.columns * (kind == CodeKind::f32 ? 4 : 2);
  block.weight_stride = weight.columns;
  block.outputs = panel_outputs(task);
  block.columns = weight.columns;
  block.bias = task.segment->bias == nullptr ? nullptr : task.segment->bias + first;
  block.tokens = task.tokens;
  block.x = task.x->values + task.token * task.x->value_stride;
  block.x_stride = task.x->value_stride;
  block.y = task.y;
  block.y_stride = task.y_stride;
  if (kind == CodeKind::f32) {
    kernels.f32(block);
  } else {
    (kind == CodeKind::f16 ? kernels.f16 : kernels.bf16)(block);
  }
}

float total(const float* chain) {
  float lanes[kLanes];
  std::copy_n(chain, kLanes, lanes);
  for (std::int64_t width = kLanes / 2; width >= 1; width /= 2) {
    for (std::int64_t i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

// Multiplies codes by f32 inputs (act none): a float chain over dequantized weights, whose lanes
// are kept in scratch between K tiles.
void multiply_dequantized(const MatmulKernels& kernels, const PanelTask& task) noexcept {
  const WeightView& weight = task.segment->weight;
  auto* const numbers = reinterpret_cast<float*>(task.scratch);
  float* const lanes = numbers + kPanelRows * kDequantColumns;
  const std::int64_t outputs = panel_outputs(task);
  const float* bias =
      task.segment->bias == nullptr ? nullptr : task.segment->bias + task.panel * kPanelRows;
  for (std::int64_t token = 0; token < task.tokens; token += kDequantTokens) {
    const std::int64_t tokens = std::min(kDequantTokens, task.tokens - token);
    std::fill_n(lanes, tokens * outputs * kLanes, 0.0f);
    for (std::int64_t k = 0; k < weight.columns; k += kDequantColumns) {
      FloatBlock block;
      block.columns = std::min(kDequantColumns, weight.columns - k);
      for (std::int64_t n = 0; n < outputs; ++n) {
        unpack_columns(weight, task.panel * kPanelRows + n, k,
                       {numbers + n * kDequantColumns, static_cast<std::size_t>(block.columns)});
      }
      block.weights = numbers;
      block.weight_stride = kDequantColumns;
      block.outputs = outputs;
      block.tokens = tokens;
      block.x = task.x->values + (task.token + token) * task.x->value_stride + k;
      block.x_stride = task.x->value_stride;
      block.lanes = lanes;
      kernels.f32(block);
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t n = 0; n < outputs; ++n) {
        const float sum = total(lanes + (t * outputs + n) * kLanes);
        task.y[(token + t) * task.y_stride + n] = bias == nullptr ? sum : sum + bias[n];
      }
    }
  }
}

}  // namespace

void multiply_panel(const MatmulKernels& kernels, const PanelTask& task) noexcept {
  const WeightView& weight = task.segment->weight;
  if (weight.scheme.is_float()) {
    multiply_floats(kernels, task);
  } else if (!is_coded(weight.act)) {
    multiply_dequantized(kernels, task);
  } else if (weight.scheme.is_super()) {
    multiply_super(kernels, task);
  } else {
    multiply_ints(kernels, task);
  }
}

void check_inputs(const Linear& linear, const Rows& x) {
  check_linear_inputs(linear, x);
  if (!is_coded(linear.act)) return;
  for (const LinearSegment& segment : linear.parts()) {
    const QuantScheme& scheme = segment.weight.scheme;
    ensure(x.format.offset_codes != scheme.is_offset(), linear.name,
           ": inputs have the wrong code offset for ", scheme_name(scheme), " weights");
    const int bits = scheme.bits;
    ensure(scheme.is_super() || bits == 8 || (bits >= 2 && bits <= 4), linear.name,
           ": no kernel for int8 inputs and ", scheme_name(scheme), " weights");
  }
}

}  // namespace leq::cpu
