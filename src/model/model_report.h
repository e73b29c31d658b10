// The description of a .leq file that leq-inspect prints, as text and as JSON.
#pragma once

#include <string>

#include "model/open_model.h"

namespace leq {

// Several lines: configuration, tokenizer, provenance, a table of tensors, totals by scheme.
std::string inspect_text(const Model& model);
// One JSON value on several lines, safe for a terminal.
std::string inspect_json(const Model& model);

}  // namespace leq
