// Options of the KV cache: types of keys and values, and which positions are stored in f16.
#pragma once

#include <string>
#include <vector>

#include "backend/kv_types.h"
#include "cache/kv_cache.h"
#include "model/memory_plan.h"
#include "model/open_model.h"
#include "tools/common/options.h"

namespace leq {

std::vector<Option> kv_options();
// Names of cache types in other programs, and the nearest types here.
const std::vector<std::array<std::string, 2>>& kv_synonyms();
// Returns all options except the types.
std::vector<Option> kv_detail_options();

// Sets the types and the residual of `limits`. Types that are not given are those that the file was
// quantized for, otherwise those that match the type of its weights. Throws Error if a number of
// sinks or recent positions is given but neither type stores positions in f16.
void choose_kv(const Options& options, const Model& model, RunLimits& limits);
// Like choose_kv, but keeps the types, which `limits` must already have.
void choose_kv_details(const Options& options, RunLimits& limits);

// "layers 0 and 27: keys f16, their biases are large"; empty if all layers have the same types.
std::string wide_keys_text(const KvShape& shape, const RunLimits& limits);
// "simq4 s4 r32 b32", "int8": the label in reports that can be compared with each other.
std::string kv_label(KvType type, const RunLimits& limits);

}  // namespace leq
