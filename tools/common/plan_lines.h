// The description of a run that tools print before the run with --verbose.
#pragma once

#include <string>
#include <vector>

#include "model/open_model.h"
#include "model/session.h"

namespace leq {

// Returns the plan, one line per entry: device, kernel of each class of linear, KV cache, memory,
// load mode.
std::vector<std::string> plan_lines(const Model& model, Session& session);

}  // namespace leq
