// The description of a linear in plans, which is the same for every backend.
#pragma once

#include <string>
#include <string_view>

#include "backend/backend.h"

namespace leq {

// A description such as "int8 x int8 rows smoothed, 12x32".
std::string linear_text(const Linear& linear, std::string_view kernel);

}  // namespace leq
