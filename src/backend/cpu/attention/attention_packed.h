// Pages of packed codes in a span (attention_span.h): codes are read where a block is closed for a
// query, f16 copies elsewhere; the position alone decides (KvResidual).
#pragma once

#include "backend/cpu/attention/attention_work.h"

namespace leq::cpu {

// Called before the span's pages: sets the initial score values and clears the sums of minima.
void begin_packed_span(const SpanWork& work);
void score_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead);
void value_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead);
// At the span's end: adds to each o_c the sum z of minima of its group.
void add_packed_minima(const SpanWork& work);

// Multiplies a head's q, k, v or output by the symmetric Hadamard matrix of rotated schemes.
void rotate_head(const PackedKernels& kernels, float* head, int head_dim);

}  // namespace leq::cpu
