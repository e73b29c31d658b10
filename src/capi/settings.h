// Reads sampling settings and stop rules from the JSON object in a `settings` argument.
#pragma once

#include "server/generation_call.h"

namespace leq::capi {

struct DrawSettings {
  SamplingSettings sampling;
  bool has_seed = false;
  StopRules stop;
  std::vector<Token> banned;
};

// Null: the model's defaults. Throws Error naming a member that is unknown, has another type or is
// out of range.
DrawSettings read_settings(const char* json, const ApiModel& model);

}  // namespace leq::capi
