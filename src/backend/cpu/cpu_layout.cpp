#include "backend/cpu/cpu_layout.h"

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/kv_layout.h"
#include "backend/cpu/delta/delta.h"
#include "backend/cpu/matmul/linear.h"
#include "backend/cpu/rows/rows_layout.h"
#include "base/thread_pool.h"

namespace leq {

CpuLayout::CpuLayout(int threads) : Layout(1), threads_(threads > 0 ? threads : usable_cores()) {}

RowsFormat CpuLayout::format_for(const Linear& consumer) const {
  return cpu::rows_format(consumer);
}

RowsLayout CpuLayout::rows(std::int64_t capacity, std::int64_t width,
                           const RowsFormat& format) const {
  return cpu::rows_layout(capacity, width, format);
}

std::size_t CpuLayout::page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) const {
  return cpu::page_bytes(part, type, kv_heads, head_dim);
}

std::size_t CpuLayout::scratch_bytes(std::int64_t tokens, const AttentionShape& shape,
                                     std::int64_t context) const {
  return linear_scratch_bytes() + cpu::attention_scratch_bytes(threads_, tokens, shape, context);
}

std::size_t CpuLayout::delta_scratch_bytes(std::int64_t, const DeltaShape& shape) const {
  return linear_scratch_bytes() + cpu::delta_scratch_bytes(threads_, shape);
}

std::size_t CpuLayout::linear_scratch_bytes() const { return cpu::linear_scratch_bytes(threads_); }

}  // namespace leq
