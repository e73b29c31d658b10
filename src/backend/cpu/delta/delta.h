// Gated DeltaNet on the CPU: the recurrence, token by token, whatever a step feeds, so that no bit
// depends on how a text is cut into steps. A head's state goes through the first caches in blocks
// of 32 columns, each over all tokens of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/delta/delta_kernels.h"
#include "backend/cpu/rows/row_kernels.h"
#include "base/thread_pool.h"

namespace leq::cpu {

struct DeltaContext {
  ThreadPool& pool;
  const RowKernels& rows;
  const DeltaKernels& kernels;
  std::span<std::byte> scratch;  // delta_scratch_bytes, 64-byte aligned
};

std::size_t delta_scratch_bytes(int threads, const DeltaShape& shape);

// Operations::delta_net. Throws Error for a row that is not finite, and for scratch that was
// reserved for less.
void delta_net(const DeltaContext& context, Rows& mixed, const Rows& gates, const BatchView& batch,
               const DeltaShape& shape, const RowsFor& out);

}  // namespace leq::cpu
