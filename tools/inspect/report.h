// What leq-inspect prints of a .leq file: for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/open_model.h"

namespace leq {

// Several lines: configuration, tokenizer, provenance, a table of tensors, totals by scheme.
std::string inspect_text(const Model& model);
nlohmann::json inspect_json(const Model& model);

}  // namespace leq
