// Sampling settings as JSON with one member for each setting, as in saved chats and receipts.
#pragma once

#include <string>

#include "base/json.h"
#include "model/sampling_settings.h"

namespace leq {

Json sampling_to_json(const SamplingSettings& settings);
// Throws Error naming `source` and the member that is missing, has another type or is out of range.
SamplingSettings sampling_from_json(const Json& json, const std::string& source);

}  // namespace leq
