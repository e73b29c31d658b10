// The description of a .leq file that leq-inspect prints, as text and as JSON.
#pragma once

#include <string>

#include "model/open_model.h"

namespace leq {

// Several lines: tokenizer, provenance, a table of tensors, totals by scheme. `all`: also the
// configuration, and a row for each tensor, not for those of all layers together.
std::string inspect_text(const Model& model, bool all);
// One JSON value on several lines, safe for a terminal.
std::string inspect_json(const Model& model);

}  // namespace leq
