#include "backend/cpu/rows/rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "backend/rows_slice.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"
#include "tensor/pack.h"
#include "tensor/quant_scheme.h"

namespace leq::cpu {
RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format) {
  // Row strides are not multiples of 4096, because equal columns would then share a cache set.
  return leq::rows_layout(capacity, width, format,
                          {round_up(width, 16) + 16, round_up(width, kPaddedColumns) + 64, 64});
}

QuantizedUnit quantized_unit(const RowsFormat& format) {
  if (!is_coded(format.act)) return QuantizedUnit::nothing;
  if (has_moving_scale(format.act)) return QuantizedUnit::rows;
  return coded_by_columns(format) ? QuantizedUnit::columns_128 : QuantizedUnit::row;
}

// Formats that are quantized by whole rows keep the f32 values. int8 weights need codes + 128,
// unsigned weights need the sums of codes.
RowsFormat rows_format(const Linear& consumer) {
  RowsFormat format = leq::rows_format(consumer);
  if (!is_coded(format.act)) return format;
  format.offset_codes = format.sum_group == 0;
  format.values = quantized_unit(format) != QuantizedUnit::columns_128;
  return format;
}

namespace {

struct Target {
  std::uint8_t* codes;  // the codes of the whole row
  float* scales;
  std::int32_t* sums;
  int offset;
  int sum_group;
};

// Writes codes and sums of x[count] for columns from `first` on; a sum must begin at `first`.
void store_codes(const RowKernels& kernels, const float* x, std::int64_t first, std::int64_t count,
                 float inv, const Target& target) {
  const std::int64_t group = target.sum_group > 0 ? target.sum_group : count;
  for (std::int64_t k = 0; k < count; k += group) {
    const std::int64_t columns = std::min(group, count - k);
    const std::int32_t sum =
        kernels.quantize(x + k, columns, inv, target.offset, target.codes + first + k);
    if (target.sum_group > 0) target.sums[(first + k) / group] = sum;
  }
}

// Writes codes of value 0 to columns [first, last), and 0 to the sums that begin there.
void store_zeros(std::int64_t first, std::int64_t last, const Target& target) {
  std::memset(target.codes + first, target.offset, static_cast<std::size_t>(last - first));
  if (target.sum_group == 0) return;
  const std::int64_t group = target.sum_group;
  const std::int64_t begin = (first + group - 1) / group, end = (last + group - 1) / group;
  if (begin < end) std::fill(target.sums + begin, target.sums + end, 0);
}

// Quantizes x[count] with one scale, for columns from `first` on.
bool quantize_group(const RowKernels& kernels, const float* x, std::int64_t first,
                    std::int64_t count, float& scale, const Target& target) {
  const float largest = kernels.absmax(x, count);
  if (!std::isfinite(largest)) return false;
  if (largest < kSmallestAbsmax) {
    scale = 1.0f;
    store_zeros(first, first + count, target);
    return true;
  }
  scale = largest / 127.0f;
  store_codes(kernels, x, first, count, 127.0f / largest, target);
  return true;
}

// Like quantize_group, but with a known scale s: inv is 1 / s or 127 / r.
bool quantize_fixed(const RowKernels& kernels, const float* x, std::int64_t first,
                    std::int64_t count, float inv, const Target& target) {
  if (!std::isfinite(kernels.absmax(x, count))) return false;
  store_codes(kernels, x, first, count, inv, target);
  return true;
}

Target target_of(const Rows& out, std::int64_t row) {
  return {out.codes + row * out.code_stride, out.scales + row * out.scale_stride,
          out.sums + row * out.sum_stride, out.format.offset_codes ? 128 : 0, out.format.sum_group};
}

// Writes the padding after the last column.
void store_pads(std::int64_t width, const Target& target) {
  store_zeros(width, (width + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns, target);
}

// Counts numbers above the range of the step; only rows whose largest |x| is above it are read.
std::uint64_t count_clipped(ThreadPool& pool, std::int64_t tokens, float range, const Rows& out) {
  std::atomic<std::uint64_t> clipped{0};
  pool.run(tokens, [&](std::int64_t token, int) {
    if (out.scales[token] <= range) return;
    const float* x = out.values + token * out.value_stride;
    const auto above = [range](float value) { return std::abs(value) > range; };
    clipped += static_cast<std::uint64_t>(std::count_if(x, x + out.width, above));
  });
  return clipped;
}

void quantize_each_row(ThreadPool& pool, const RowKernels& kernels, std::int64_t tokens,
                       std::string_view site, const RowsFor& out) {
  const Rows& rows = out.rows;
  FirstBadRow bad;
  pool.run(tokens, [&](std::int64_t token, int) {
    const float* x = rows.values + token * rows.value_stride;
    if (!quantize_columns(kernels, x, token, 0, rows.width, out)) bad.report(token);
  });
  bad.check(site);
}

}  // namespace

bool quantize_columns(const RowKernels& kernels, const float* x, std::int64_t row,
                      std::int64_t first, std::int64_t count, const RowsFor& out) noexcept {
  const Target target = target_of(out.rows, row);
  const ActKind act = out.rows.format.act;
  if (has_stored_scale(act)) {
    const float scale = out.consumer.act_scale;
    if (!quantize_fixed(kernels, x, first, count, 1.0f / scale, target)) return false;
    // One thread writes the scale, but ranks that share the block may store it concurrently.
    if (first == 0) std::atomic_ref(*target.scales).store(scale, std::memory_order_relaxed);
  } else {
    const std::int64_t group = scale_columns(act) > 0 ? scale_columns(act) : out.rows.width;
    for (std::int64_t k = 0; k < count; k += group) {
      const std::int64_t columns = std::min(group, count - k);
      float& scale = target.scales[(first + k) / group];
      if (!quantize_group(kernels, x + k, first + k, columns, scale, target)) return false;
    }
  }
  if (first + count == out.rows.width) store_pads(out.rows.width, target);
  return true;
}

// The largest |x| of each row is stored temporarily in the place of its scale.
void quantize_step(ThreadPool& pool, const RowKernels& kernels, std::int64_t tokens,
                   std::string_view site, const RowsFor& out) {
  const Rows& rows = out.rows;
  OnlineScale& online = *out.consumer.online;
  if (online.dynamic()) return quantize_each_row(pool, kernels, tokens, site, out);
  FirstBadRow bad;
  pool.run(tokens, [&](std::int64_t token, int) {
    rows.scales[token] = kernels.absmax(rows.values + token * rows.value_stride, rows.width);
    if (!std::isfinite(rows.scales[token])) bad.report(token);
  });
  bad.check(site);
  const float range = online.begin(*std::max_element(rows.scales, rows.scales + tokens));
  online.end(count_clipped(pool, tokens, range, rows),
             static_cast<std::uint64_t>(tokens * rows.width));
  const float scale = range / 127.0f, inv = 127.0f / range;
  pool.run(tokens, [&](std::int64_t token, int) {
    const Target target = target_of(rows, token);
    const float* x = rows.values + token * rows.value_stride;
    store_codes(kernels, x, 0, rows.width, inv, target);
    *target.scales = scale;
    store_pads(rows.width, target);
  });
}

void quantize_whole_rows(ThreadPool& pool, const RowKernels& kernels, std::int64_t tokens,
                         std::string_view site, const RowsFor& out) {
  const QuantizedUnit unit = quantized_unit(out.rows.format);
  if (unit == QuantizedUnit::rows) quantize_step(pool, kernels, tokens, site, out);
  if (unit == QuantizedUnit::row) quantize_each_row(pool, kernels, tokens, site, out);
}

namespace {

const std::byte* float_row(const WeightView& table, std::int64_t row, std::int64_t bytes) {
  return table.codes + row * table.columns * bytes;
}

void gather_f32(const WeightView& table, std::int64_t row, float* out) {
  std::memcpy(out, float_row(table, row, 4), static_cast<std::size_t>(table.columns) * 4);
}

template <float (*widen)(std::uint16_t)>
void gather_half(const WeightView& table, std::int64_t row, float* out) {
  const auto* halves = reinterpret_cast<const std::uint16_t*>(float_row(table, row, 2));
  for (std::int64_t k = 0; k < table.columns; ++k) out[k] = widen(halves[k]);
}

// For int8 with a scale per row, as in most embeddings: quads of columns are 256 bytes apart.
void gather_int8_row(const WeightView& table, std::int64_t row, float* out) {
  const auto* quads = reinterpret_cast<const std::int8_t*>(table.codes) +
                      panel_byte(8, table.padded_columns(), row, 0);
  const float scale = static_cast<const float*>(table.scales)[row];
  for (std::int64_t k = 0; k < table.columns; ++k) {
    out[k] = static_cast<float>(quads[k / 4 * 256 + k % 4]) * scale;
  }
}

void gather_any(const WeightView& table, std::int64_t row, float* out) {
  unpack_columns(table, row, 0, {out, static_cast<std::size_t>(table.columns)});
}

using Gather = void (*)(const WeightView&, std::int64_t, float*);

Gather gather_for(const QuantScheme& scheme) {
  switch (scheme.kind) {
    case CodeKind::f32:
      return gather_f32;
    case CodeKind::f16:
      return gather_half<f16_to_f32>;
    case CodeKind::bf16:
      return gather_half<bf16_to_f32>;
    case CodeKind::int_:
      return scheme.bits == 8 && scheme.scaling != Scaling::group ? gather_int8_row : gather_any;
    default:
      return gather_any;
  }
}

}  // namespace

void gather_row(const WeightView& table, std::int64_t row, float* out) {
  gather_for(table.scheme)(table, row, out);
}

}  // namespace leq::cpu
