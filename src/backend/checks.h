// Preconditions of all backends: shapes and formats that fit together, checked before any work.
// Each throws Error that names the operation or the linear, what was expected and found.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operations.h"

namespace leq {

void require_capacity(std::string_view what, std::int64_t tokens, const Rows& rows);
// `drawn`: rows of the device's last draw, which ids may name.
void check_embedding(const Embedding& embedding, const Rows& x, std::int64_t drawn);
void check_add_rows(const Rows& y, std::int64_t tokens, const Rows& x);
void check_rotation(const Rows& x, std::int64_t tokens, const RotationTable& rotation);
void check_gather(const Rows& x, std::span<const std::int32_t> rows, const Rows& out);
void check_norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& out);
// Inputs and outputs of a linear, except for a backend's own row formats.
void check_linear_inputs(const Linear& linear, const Rows& x);
void check_linear_outputs(const Linear& linear, std::int64_t tokens, const Rows& x,
                          Epilogue epilogue, const RowsFor& out);
void check_qkv(const Rows& qkv, const BatchView& batch, const AttentionShape& shape);
// The pages of each run hold its positions.
void check_pages(const BatchView& batch);
// The table's positions and frequencies suffice for positions below `end`.
void check_rope(const RopeTable& rope, const AttentionShape& shape, std::int64_t end);
void check_query_factors(const RopeTable& rope, const AttentionShape& shape, std::int64_t end);
// Every run has a state to write.
void check_delta_net(const Rows& mixed, const Rows& gates, const BatchView& batch,
                     const DeltaShape& shape, const RowsFor& out);
void check_attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                     const RowsFor& out);
// Also that ids of changes ascend and are in the vocabulary.
void check_sample(const Rows& logits, std::span<const SampleRequest> requests);
void check_drawn(std::span<const SampleRequest> requests, std::span<const std::int32_t> drawn);
void check_download(const Rows& x, std::int64_t tokens, std::span<const float> out);
void check_assign(std::span<const float> values, const Rows& x);
// out.consumer has what its format needs; `site` names the linear or operation that writes out.
void check_consumer(std::string_view site, const RowsFor& out);

// Why Operations::sample found no token for a row and reported `drawn`: every token is banned, or
// the logit that is no number. Waits.
std::string undrawn_text(Operations& operations, const Rows& logits, std::int64_t row,
                         std::int32_t drawn);
// Throws that text as the Error of the first row without a token.
void require_drawn(Operations& operations, const Rows& logits, std::span<const std::int32_t> drawn);
// Throws the Error of a row that cannot be quantized.
[[noreturn]] void fail_not_finite(std::string_view site, std::int64_t row);

}  // namespace leq
