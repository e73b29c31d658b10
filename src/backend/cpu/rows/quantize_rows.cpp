#include "backend/cpu/rows/quantize_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "backend/cpu/rows/first_bad_row.h"
#include "backend/cpu/rows/rows_layout.h"
#include "base/error.h"
#include "tensor/quant_scheme.h"

namespace leq::cpu {
namespace {

struct Target {
  std::uint8_t* codes;  // of the whole row
  float* scales;
  std::int32_t* sums;
  int offset;
  int sum_group;
};

// x[count] at columns first..., with one scale.
bool quantize_group(const RowKernels& kernels, const float* x, std::int64_t first,
                    std::int64_t count, float& scale, const Target& target) {
  const float largest = kernels.absmax(x, count);
  if (!std::isfinite(largest)) return false;
  std::uint8_t* codes = target.codes + first;
  if (largest < kSmallestAbsmax) {
    scale = 1.0f;
    std::memset(codes, target.offset, static_cast<std::size_t>(count));
    return true;
  }
  scale = largest / 127.0f;
  kernels.quantize(x, count, 127.0f / largest, target.offset, codes);
  return true;
}

// The same with a scale that is known: s, and inv = 1 / s or 127 / r.
bool quantize_fixed(const RowKernels& kernels, const float* x, std::int64_t first,
                    std::int64_t count, float inv, const Target& target) {
  if (!std::isfinite(kernels.absmax(x, count))) return false;
  kernels.quantize(x, count, inv, target.offset, target.codes + first);
  return true;
}

Target target_of(const Rows& out, std::int64_t row) {
  return {out.codes + row * out.code_stride, out.scales + row * out.scale_stride,
          out.sums + row * out.sum_stride, out.format.offset_codes ? 128 : 0, out.format.sum_group};
}

// Code sums of the columns [first, last), first at the beginning of a sum group.
void store_sums(const RowKernels& kernels, std::int64_t first, std::int64_t last,
                const Target& target) {
  for (std::int64_t k = first; k < last; k += target.sum_group) {
    const std::int64_t count = std::min<std::int64_t>(target.sum_group, last - k);
    target.sums[k / target.sum_group] = kernels.code_sum(target.codes + k, count, target.offset);
  }
}

// Pads after the last column, and the sums of the columns [first, last).
void finish_columns(const RowKernels& kernels, std::int64_t first, std::int64_t last,
                    std::int64_t width, const Target& target) {
  if (last == width) {
    const std::int64_t padded = (width + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns;
    std::memset(target.codes + last, target.offset, static_cast<std::size_t>(padded - last));
    last = padded;
  }
  if (target.sum_group > 0) store_sums(kernels, first, last, target);
}

// Numbers of the step above the range; rows that hold none are not looked at twice.
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
    // One writer a row; ranks that share the block store the same number at the same time.
    if (first == 0) std::atomic_ref(*target.scales).store(scale, std::memory_order_relaxed);
  } else {
    const std::int64_t group = scale_columns(act) > 0 ? scale_columns(act) : out.rows.width;
    for (std::int64_t k = 0; k < count; k += group) {
      const std::int64_t columns = std::min(group, count - k);
      float& scale = target.scales[(first + k) / group];
      if (!quantize_group(kernels, x + k, first + k, columns, scale, target)) return false;
    }
  }
  finish_columns(kernels, first, first + count, out.rows.width, target);
  return true;
}

// The largest |x| of each row waits where its scale will be.
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
    kernels.quantize(x, rows.width, inv, target.offset, target.codes);
    *target.scales = scale;
    finish_columns(kernels, 0, rows.width, rows.width, target);
  });
}

void quantize_whole_rows(ThreadPool& pool, const RowKernels& kernels, std::int64_t tokens,
                         std::string_view site, const RowsFor& out) {
  const QuantizedUnit unit = quantized_unit(out.rows.format);
  if (unit == QuantizedUnit::rows) quantize_step(pool, kernels, tokens, site, out);
  if (unit == QuantizedUnit::row) quantize_each_row(pool, kernels, tokens, site, out);
}

}  // namespace leq::cpu
