#include "hostile/leq_parts.h"

#include <xxhash.h>

#include <algorithm>
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

std::string with_prefix_checksums(std::string file) {
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    if (at + sizeof value <= file.size()) std::memcpy(&value, file.data() + at, sizeof value);
    return value;
  };
  // Sets the checksum at `at` of the `bytes` that follow it. Returns their end, or 0.
  const auto seal = [&](std::size_t at, std::uint64_t bytes) -> std::size_t {
    if (file.size() < at + 8 || bytes > file.size() - at - 8) return 0;
    const auto count = static_cast<std::size_t>(bytes);
    put(file, at, XXH3_64bits(file.data() + at + 8, count));
    return at + 8 + count;
  };
  if (number(24) > file.size()) return file;
  for (std::size_t at = seal(8, 16 + number(24)); at > 0 && at < file.size();) {
    const std::uint64_t tokens = number(at + 8), kv = number(at + 16), states = number(at + 24);
    if (std::max({tokens, kv, states, number(at + 32)}) > file.size()) break;
    at = seal(at, 32 + 4 * tokens + kv + states * (8 + number(at + 32)));
  }
  return file;
}

}  // namespace leq::hostile
