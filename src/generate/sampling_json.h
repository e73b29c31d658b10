// Sampling settings as JSON, a member for each knob: what saved chats and receipts hold.
#pragma once

#include <string>

#include "base/json.h"
#include "model/sampling_settings.h"

namespace leq {

Json sampling_to_json(const SamplingSettings& settings);
// Throws Error naming `source`, and the member that is missing, of another type or out of range.
SamplingSettings sampling_from_json(const Json& json, const std::string& source);

}  // namespace leq
