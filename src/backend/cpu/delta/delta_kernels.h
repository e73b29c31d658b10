// Gated DeltaNet for each instruction set: the recurrence over a block of a state's columns, and
// the convolution over time. All sets give bit-identical results, because a column's sums do not
// depend on the columns that are computed together with it (docs/numerics.md).
#pragma once

#include <cstdint>

#include "base/cpu_features.h"

namespace leq::cpu {

// A block of columns of one value head, for neighbouring tokens of a run.
struct DeltaBlock {
  const float* query = nullptr;  // [tokens][key_dim]
  const float* key = nullptr;    // [tokens][key_dim]
  float* value = nullptr;        // [tokens][columns], rows value_stride apart: v, replaced by o
  const float* alpha = nullptr;  // [tokens]
  const float* beta = nullptr;   // [tokens]
  const float* from = nullptr;   // S [key_dim][columns] before the first token
  float* to = nullptr;           // S after the last token; may equal `from`
  std::int64_t tokens = 0, value_stride = 0;
  // The columns of S that the caller reads next, prefetched during the last token. Null: nothing.
  const float* next_state = nullptr;
  // Memory that the caller reads next and that is prefetched meanwhile: fetch_bytes for each token,
  // fetch_stride floats apart. Null: nothing.
  const float* fetch = nullptr;
  std::int64_t fetch_stride = 0;
  int fetch_bytes = 0;
  int key_dim = 0;
  int columns = 0;  // at most kDeltaColumns
};

struct DeltaKernels {
  // For each token and column j:
  //   t = S^T k; u = (v - alpha t) beta; S_i = fma(k_i, u, alpha S_i); o = S^T q
  // where v - alpha t is one fma. Sums over i have four lanes i % 4, each an fma chain with i
  // ascending from +0, and end as (lane 0 + lane 1) + (lane 2 + lane 3).
  void (*recur)(const DeltaBlock& block) noexcept;
  // out = silu(c), where c = conv[0] * x[0], then c = fma(conv[j], x[j], c) for j = 1 ... taps - 1.
  // The weights of tap j begin at conv + j * stride. out may be one of x.
  void (*convolve)(const float* const* x, const float* conv, std::int64_t stride, int taps,
                   std::int64_t n, float* out) noexcept;
};

// The kernel table of an instruction-set level; the processor must support it.
const DeltaKernels& delta_kernels(Isa isa);

}  // namespace leq::cpu
