// Builds .leq files byte by byte, valid and hostile ones, without the writer.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace leq::test {

using Bytes = std::vector<std::byte>;

inline void put_u64(Bytes& bytes, std::size_t at, std::uint64_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

inline std::uint64_t get_u64(const Bytes& bytes, std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

inline Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::string hash_text(const std::byte* data, std::size_t size) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(data, size)));
  return text;
}

// Returns a preamble, `data` from byte 64 on (whose size is a multiple of 64), then `json`; all
// numbers in the preamble match the content.
inline Bytes leq_file(const std::string& json, const Bytes& data) {
  const std::size_t json_offset = 64 + data.size();
  Bytes bytes(json_offset + json.size());
  const unsigned char magic[8] = {0x89, 'L', 'E', 'Q', 0x0d, 0x0a, 0x1a, 0x0a};
  std::memcpy(bytes.data(), magic, sizeof magic);
  bytes[8] = std::byte{1};  // major version
  std::copy(data.begin(), data.end(), bytes.begin() + 64);
  std::transform(json.begin(), json.end(), bytes.begin() + static_cast<std::ptrdiff_t>(json_offset),
                 [](char c) { return static_cast<std::byte>(c); });
  put_u64(bytes, 16, json_offset);
  put_u64(bytes, 24, json.size());
  put_u64(bytes, 32, XXH3_64bits(json.data(), json.size()));
  put_u64(bytes, 40, bytes.size());
  return bytes;
}

}  // namespace leq::test
