// Rows of activations on the CPU: their memory layout, quantization, and reading of embeddings.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string_view>

#include "backend/checks.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/layout.h"
#include "backend/rows.h"
#include "base/thread_pool.h"
#include "tensor/weight_layout.h"

namespace leq::cpu {

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format);

// The part of a row that must be complete before it is quantized. nothing: never quantized;
// columns_128: any 128 columns (group scales, or a stored scale unless a sum covers more columns);
// row: the whole row; rows: all rows of the step (a moving scale).
enum class QuantizedUnit : std::uint8_t { nothing, columns_128, row, rows };
QuantizedUnit quantized_unit(const RowsFormat& format);

// The format that the CPU's matmuls read.
RowsFormat rows_format(const Linear& consumer);

// The first row of a batch in which any thread found a value that is not finite.
class FirstBadRow {
 public:
  void report(std::int64_t row) noexcept {
    std::int64_t seen = row_.load(std::memory_order_relaxed);
    while (row < seen && !row_.compare_exchange_weak(seen, row, std::memory_order_relaxed)) {
    }
  }
  // Called after the threads are done: throws the Error of fail_not_finite if a row was reported.
  void check(std::string_view site) const {
    const std::int64_t row = row_.load(std::memory_order_relaxed);
    if (row != kNone) fail_not_finite(site, row);
  }

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> row_{kNone};
};

// Quantizes x[count] as columns [first, first + count) of row `row`: writes codes, scales and sums.
// x is the whole row (first = 0, count = width) or, if quantized_unit is columns_128, any whole
// groups of 128 columns (the last may be short). Padding up to ceil128(width) has the value 0.
// Returns false if x is not finite. Not for a moving scale.
bool quantize_columns(const RowKernels& kernels, const float* x, std::int64_t row,
                      std::int64_t first, std::int64_t count, const RowsFor& out) noexcept;

// Quantizes all rows of out.values of a step with a moving scale: one scale for all rows or, after
// the fallback to dynamic scales, one scale per row. Throws Error with `site` and the row if a row
// is not finite; the online scale is then unchanged.
void quantize_step(ThreadPool& pool, const RowKernels& kernels, std::int64_t tokens,
                   std::string_view site, const RowsFor& out);

// Quantizes all rows of out.values if a scale depends on a whole row or on all rows (quantized_unit
// row and rows). Does nothing for other formats. Throws Error like quantize_step.
void quantize_whole_rows(ThreadPool& pool, const RowKernels& kernels, std::int64_t tokens,
                         std::string_view site, const RowsFor& out);

// out[columns] = row `row` of the table; a code becomes code * scale, one f32 product.
void gather_row(const WeightView& table, std::int64_t row, float* out);

}  // namespace leq::cpu
