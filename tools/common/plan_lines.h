// What tools say about a run before it begins, with --verbose.
#pragma once

#include <string>
#include <vector>

#include "model/open_model.h"
#include "model/session.h"

namespace leq {

// The plan: device, kernel of each class of linear, KV cache, memory, how the file was loaded. One
// line an entry.
std::vector<std::string> plan_lines(const Model& model, Session& session);

}  // namespace leq
