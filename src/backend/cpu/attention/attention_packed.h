// Pages of packed codes in a span (attention_span.h): codes where a block is closed for a query,
// f16 copies elsewhere, by position alone (KvResidual).
#pragma once

#include "backend/cpu/attention/attention_work.h"

namespace leq::cpu {

// Before the span's pages: what scores begin with, sums of minima.
void begin_packed_span(const SpanWork& work);
void score_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead);
void value_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead);
// o_c + z of its group, at the span's end.
void add_packed_minima(const SpanWork& work);

// A head's q, k, v or output times the symmetric Hadamard matrix of schemes that are rotated.
void rotate_head(const PackedKernels& kernels, float* head, int head_dim);

}  // namespace leq::cpu
