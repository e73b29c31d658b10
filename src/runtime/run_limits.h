// Computes the limits of a session from the caller's settings and the model's file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/kv_types.h"
#include "model/memory_plan.h"
#include "model/open_model.h"

namespace leq {

// Sets the KV types: the given ones, otherwise those that the file was quantized for, otherwise
// those that match the type of the model's weights.
void choose_kv_types(const std::optional<KvType>& keys, const std::optional<KvType>& values,
                     const Model& model, RunLimits& limits);

// A text such as "keys simq4, values simq4 (f16: the first 4 and the newest 32; blocks of 32)".
std::string kv_text(const RunLimits& limits);

// One line about limits that the evidence in the file does not cover; empty if all are covered or
// if the file has no evidence.
std::string beyond_evidence(const Model& model, const RunLimits& limits);

enum class Drafting : std::uint8_t { off, from_text, by_model };

// Rows of logits per step: one per sequence, plus the draft tokens verified with it. A draft model
// drafts for several sequences at once.
std::int64_t reply_rows(int sequences, Drafting drafting);

}  // namespace leq
