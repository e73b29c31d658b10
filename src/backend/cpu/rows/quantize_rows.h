// Quantizes finished f32 rows to int8 codes in their consumer's format (docs/numerics.md): shared
// by norm, attention and the epilogues of linear.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/cpu/rows/row_kernels.h"
#include "backend/rows.h"
#include "base/thread_pool.h"

namespace leq::cpu {

// Writes codes, scale(s) and sums of row `row`, columns [first, first + count), from x[count]; not
// for a moving scale. Takes the whole row (first = 0, count = width) or, where quantized_unit is
// columns_128, any whole groups of 128 columns (the last may be short). Pads up to ceil128(width)
// hold value 0. Returns false where x is not finite.
bool quantize_columns(const RowKernels& kernels, const float* x, std::int64_t row,
                      std::int64_t first, std::int64_t count, const RowsFor& out) noexcept;

// Quantizes all rows of a step with a moving scale, from out.values: one scale for all of them, or
// one for each after the fallback to dynamic scales. Throws Error naming `site` and a row that is
// not finite; the online scale is then unchanged.
void quantize_step(ThreadPool& pool, const RowKernels& kernels, std::int64_t tokens,
                   std::string_view site, const RowsFor& out);

// Quantizes all rows where a scale needs a whole row or all rows (quantized_unit row and rows),
// from out.values; does nothing for other formats. Throws Error as quantize_step does.
void quantize_whole_rows(ThreadPool& pool, const RowKernels& kernels, std::int64_t tokens,
                         std::string_view site, const RowsFor& out);

}  // namespace leq::cpu
