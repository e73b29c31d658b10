// Gated DeltaNet and gated short convolutions on the CPU. The recurrence always runs token by
// token, so that no bit depends on how a text is divided into steps. A head's state is processed in
// blocks of 32 columns, which remain in the L1 and L2 caches for all tokens of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/thread_pool.h"

namespace leq::cpu {

struct DeltaContext {
  ThreadPool& pool;
  const RowKernels& rows;
  const DeltaKernels& kernels;
  std::span<std::byte> scratch;  // delta_scratch_bytes, 64-byte aligned
};

std::size_t delta_scratch_bytes(int threads, const DeltaShape& shape);

// Operations::delta_net. Throws Error for a row that is not finite, and if the reserved scratch is
// too small.
void delta_net(const DeltaContext& context, Rows& mixed, const Rows& gates, const BatchView& batch,
               const DeltaShape& shape, const RowsFor& out);

// Operations::short_conv; needs no scratch. Throws Error for a row that is not finite.
void short_conv(const DeltaContext& context, Rows& mixed, const BatchView& batch,
                const ShortConvShape& shape, const RowsFor& out);

}  // namespace leq::cpu
