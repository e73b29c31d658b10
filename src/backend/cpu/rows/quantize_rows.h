// Quantizes finished f32 rows to int8 codes in the format of their consumer (docs/numerics.md).
// Used by norm, attention and the epilogues of linear.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/cpu/rows/row_kernels.h"
#include "backend/rows.h"
#include "base/thread_pool.h"

namespace leq::cpu {

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

}  // namespace leq::cpu
