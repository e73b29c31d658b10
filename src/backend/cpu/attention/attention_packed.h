// Attention over pages of packed codes (attention_span.h). A query reads codes of blocks that are
// closed for it and f16 copies of the others; positions alone decide this (KvResidual).
#pragma once

#include "backend/cpu/attention/attention_work.h"

namespace leq::cpu {

// Called before the span's pages: computes the initial values of scores and clears sums of minima.
void begin_packed_span(const SpanWork& work);
void score_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead);
void value_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead);
// Called at the end of a span: adds z, the sum of p * m for the group of channel c, to each o_c.
void add_packed_minima(const SpanWork& work);

// Multiplies a head's q, k, v or output by the symmetric Hadamard matrix of rotated schemes.
void rotate_head(const PackedKernels& kernels, float* head, int head_dim);

}  // namespace leq::cpu
