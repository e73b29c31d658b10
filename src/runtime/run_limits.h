// What a run asks of a session, from what a caller says and what the model's file says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/kv_types.h"
#include "model/memory_plan.h"
#include "model/open_model.h"

namespace leq {

// Types of keys and values: those that are given, else what the file was made for, else by the type
// of its weights.
void choose_kv_types(const std::optional<KvType>& keys, const std::optional<KvType>& values,
                     const Model& model, RunLimits& limits);

// "keys simq4, values simq4 (f16: the first 4 and the newest 32; blocks of 32)"
std::string kv_text(const RunLimits& limits);

// What a file's evidence does not cover of these limits, in a line; empty where it has none or all
// is covered.
std::string beyond_evidence(const Model& model, const RunLimits& limits);

enum class Drafting : std::uint8_t { off, from_text, by_model };

// Rows of logits of one step: one for each sequence and the draft tokens that are verified with
// them. A draft model drafts for several sequences at once.
std::int64_t reply_rows(int sequences, Drafting drafting);

}  // namespace leq
