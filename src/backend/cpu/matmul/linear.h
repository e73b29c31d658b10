// Drives Operations::linear on the CPU: cuts the outputs into panels and the rows into blocks, runs
// the matmul kernels on the pool, and finishes each block (bias, residual, SwiGLU, GELU,
// quantization) while it is in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/rows/row_kernels.h"
#include "base/thread_pool.h"

namespace leq::cpu {

struct LinearContext {
  ThreadPool& pool;
  const RowKernels& rows;
  const MatmulKernels& matmul;
  std::span<std::byte> scratch;  // linear_scratch_bytes(pool.threads()), 64-byte aligned
  Fetch fetch = Fetch::twice;    // of IntPanel
};

// Bytes of scratch for any linear and any number of tokens.
std::size_t linear_scratch_bytes(int threads);

// out[t] = epilogue(x[t] W^T + b) for t < tokens, as Operations::linear says. x holds what
// linear.act needs (values for none; codes, scales and, for unsigned weights, sums else). Where
// whole rows are quantized, out.values must be there too.
// Throws Error that names linear.name and the row where a value to be quantized is not finite, and
// where formats and shapes do not fit together.
void run_linear(const LinearContext& context, const Rows& x, std::int64_t tokens,
                const Linear& linear, Epilogue epilogue, const RowsFor& out);

// For example "avx512vnni int8-g128 x int8 rows, 12x32".
std::string describe_linear(const MatmulKernels& matmul, const Linear& linear);

}  // namespace leq::cpu
