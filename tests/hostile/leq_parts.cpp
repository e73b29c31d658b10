#include "hostile/leq_parts.h"

#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

namespace leq::hostile {
namespace {

constexpr std::size_t kJsonOffset = 16, kJsonBytes = 24, kJsonHash = 32, kFileBytes = 40;

std::uint64_t number_at(const std::string& file, std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

void put(std::string& file, std::size_t at, std::uint64_t value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

std::string json_of(const std::string& file) {
  return file.substr(number_at(file, kJsonOffset), number_at(file, kJsonBytes));
}

LeqParts parts_of(const std::string& file) {
  LeqParts parts;
  parts.json_offset = number_at(file, kJsonOffset);
  parts.json_bytes = number_at(file, kJsonBytes);
  const auto json = nlohmann::json::parse(json_of(file));
  const auto add = [&](const std::string& name, bool blob, const nlohmann::json& range) {
    const std::size_t bytes = range["bytes"];
    if (bytes > 0) parts.ranges.push_back({name, blob, range["offset"], bytes});
  };
  for (const auto& [name, tensor] : json["tensors"].items()) {
    for (const auto& [plane, range] : tensor["planes"].items())
      add(name + " " + plane, false, range);
  }
  for (const auto& [name, range] : json["blobs"].items()) add(name, true, range);
  return parts;
}

std::string with_json(const std::string& file, const std::string& json) {
  const std::size_t offset = number_at(file, kJsonOffset);
  std::string changed = file.substr(0, offset) + json;
  put(changed, kJsonBytes, json.size());
  put(changed, kJsonHash, XXH3_64bits(json.data(), json.size()));
  put(changed, kFileBytes, changed.size());
  return changed;
}

std::string with_checksum(const std::string& file, const LeqParts& parts, std::size_t range) {
  const LeqParts::Range& changed = parts.ranges.at(range);
  auto json = nlohmann::ordered_json::parse(json_of(file));
  const std::string now = hex(XXH3_64bits(file.data() + changed.offset, changed.bytes));
  if (changed.blob) {
    json["blobs"][changed.name]["xxh3"] = now;
  } else {
    const std::size_t space = changed.name.rfind(' ');
    json["tensors"][changed.name.substr(0, space)]["planes"][changed.name.substr(space + 1)]
        ["xxh3"] = now;
  }
  return with_json(file, json.dump());
}

std::string with_prompt_checksum(std::string prompt) {
  put(prompt, kPromptBody - 8,
      XXH3_64bits(prompt.data() + kPromptBody, prompt.size() - kPromptBody));
  return prompt;
}

}  // namespace leq::hostile
