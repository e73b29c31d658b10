// Preconditions of all backends: shapes and formats must fit together, which is checked before any
// work. Each check throws Error with the operation or linear, the expected and the found value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operations.h"

namespace leq {

void require_capacity(std::string_view what, std::int64_t tokens, const Rows& rows);
// `drawn`: number of rows in the device's last draw, to which ids may refer.
void check_embedding(const Embedding& embedding, const Rows& x, std::int64_t drawn);
void check_add_rows(const Rows& y, std::int64_t tokens, const Rows& x);
void check_gather(const Rows& x, std::span<const std::int32_t> rows, const Rows& out);
void check_norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& out);
// Checks inputs and outputs of a linear, except for row formats that are specific to a backend.
void check_linear_inputs(const Linear& linear, const Rows& x);
void check_linear_outputs(const Linear& linear, std::int64_t tokens, const Rows& x,
                          Epilogue epilogue, const RowsFor& out);
void check_qkv(const Rows& qkv, const BatchView& batch, const AttentionShape& shape);
// Checks that the pages of each run cover its positions.
void check_pages(const BatchView& batch);
// Checks that the table has frequencies, and covers all positions below `end`.
void check_rope(const RopeTable& rope, const AttentionShape& shape, std::int64_t end);
void check_query_factors(const RopeTable& rope, const AttentionShape& shape, std::int64_t end);
// Checks shapes, and that every run of the batch has a recurrent state to write.
void check_delta_net(const Rows& mixed, const Rows& gates, const BatchView& batch,
                     const DeltaShape& shape, const RowsFor& out);
void check_short_conv(const Rows& mixed, const BatchView& batch, const ShortConvShape& shape,
                      const RowsFor& out);
void check_attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                     const RowsFor& out);
// Checks shapes, and that the ids of changes are in ascending order and in the vocabulary.
void check_sample(const Rows& logits, std::span<const SampleRequest> requests);
void check_drawn(std::span<const SampleRequest> requests, std::span<const std::int32_t> drawn);
void check_download(const Rows& x, std::int64_t tokens, std::span<const float> out);
void check_assign(std::span<const float> values, const Rows& x);
// Checks out.consumer against its format; `site` is the linear or operation that writes `out`.
void check_consumer(std::string_view site, const RowsFor& out);

// The reason why Operations::sample reported `drawn` for a row without a token: every token is
// banned, or a logit is NaN or +infinity. Waits for the device.
std::string undrawn_text(Operations& operations, const Rows& logits, std::int64_t row,
                         std::int32_t drawn);
// Throws Error with undrawn_text for the first row without a token.
void require_drawn(Operations& operations, const Rows& logits, std::span<const std::int32_t> drawn);
// Throws Error for a row that cannot be quantized.
[[noreturn]] void fail_not_finite(std::string_view site, std::int64_t row);

}  // namespace leq
