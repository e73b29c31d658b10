// Sampling settings as JSON with one member for each setting, as in saved chats and receipts.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "model/sampling_settings.h"

namespace leq {

// Reads members of JSON files that users may have edited: checks types and ranges, and throws
// Errors that name the file and the member.
inline const Json& json_member(const Json& object, const char* key, Json::Type type,
                               const std::string& source) {
  const auto found = object.find(key);
  if (found == object.end() || found->type() != type) json_type_error(object, key, source);
  return *found;
}

inline std::int64_t json_whole(const Json& object, const char* key, std::int64_t low,
                               std::int64_t high, const std::string& source) {
  const auto value = json_get<std::int64_t>(object, key, source);
  require(value >= low && value <= high, source, ": '", key, "' is ", value,
          ", expected a number from ", low, " to ", high);
  return value;
}

Json sampling_to_json(const SamplingSettings& settings);
// Throws Error naming `source` and the member that is missing, has another type or is out of range.
SamplingSettings sampling_from_json(const Json& json, const std::string& source);

}  // namespace leq
