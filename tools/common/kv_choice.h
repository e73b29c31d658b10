// The options of the KV cache: types of keys and values, and what stays in f16 beside codes.
#pragma once

#include <string>
#include <vector>

#include "backend/kv_types.h"
#include "cache/kv_cache.h"
#include "model/memory_plan.h"
#include "model/open_model.h"
#include "tools/common/options.h"

namespace leq {

std::vector<Option> kv_options(const std::string& group);
// Without the types.
std::vector<Option> kv_detail_options(const std::string& group);

// Types and residual of `limits` as the options have them; where they name no type, what the file
// was made for, else by the type of its weights. Throws Error for numbers that no chosen type has a
// use for.
void choose_kv(const Options& options, const Model& model, RunLimits& limits);
// The same for types that `limits` have already.
void choose_kv_details(const Options& options, RunLimits& limits);

// "layers 0 and 27: keys f16, their biases are large"; empty where all layers are alike.
std::string wide_keys_text(const KvShape& shape, const RunLimits& limits);
// "simq4 s4 r32 b32", "int8": for reports that are compared.
std::string kv_label(KvType type, const RunLimits& limits);

}  // namespace leq
