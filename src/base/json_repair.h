// Reads what there is of an object of JSON that a model did not end, or wrote wrongly.
#pragma once

#include <string_view>

#include "base/json.h"

namespace leq {

// The object as far as the text is valid: open strings and brackets are closed, a value that is no
// whole one and all after it are left out, and of equal keys the last counts. Empty if the text
// begins no object, or one that is nested too deep.
Json repaired_object(std::string_view text);

}  // namespace leq
