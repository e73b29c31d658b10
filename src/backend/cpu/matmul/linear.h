// Operations::linear on the CPU: divides outputs into panels and rows into blocks, runs the matmul
// kernels on the thread pool, and finishes each block (bias, residual, SwiGLU, GELU, quantization)
// while it is in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/operations.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace leq::cpu {

struct LinearContext {
  ThreadPool& pool;
  const RowKernels& rows;
  const MatmulKernels& matmul;
  std::span<std::byte> scratch;  // linear_scratch_bytes(pool.threads()), 64-byte aligned
  Fetch fetch = Fetch::twice;    // see IntPanel
};

// Bytes of scratch that suffice for any linear and any number of tokens.
std::size_t linear_scratch_bytes(int threads);

// out[t] = epilogue(x[t] W^T + b) for t < tokens, as specified by Operations::linear. x has what
// linear.act needs: values for none; otherwise codes, scales and, for unsigned weights, sums. If
// whole rows are quantized, out.values is required too. Throws Error with linear.name and the
// row if a value to be quantized is not finite, and Error if formats and shapes do not fit
// together.
void run_linear(const LinearContext& context, const Rows& x, std::int64_t tokens,
                const Linear& linear, Epilogue epilogue, const RowsFor& out);

// A description such as "avx512vnni int8-g128 x int8 rows, 12x32".
std::string describe_linear(const MatmulKernels& matmul, const Linear& linear);

// Operations::experts_gated and experts_add.
void run_experts_gated(const LinearContext& context, const Rows& x, const ExpertRoutes& routes,
                       const ExpertLinears& experts, Rows& grouped, Rows& out);
void run_experts_add(const LinearContext& context, const Rows& products, const ExpertRoutes& routes,
                     const ExpertLinear& down, Rows& x);

}  // namespace leq::cpu
