// Caches the ids of short words within one encode call, as offsets into its output.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

class WordCache {
 public:
  // For shorter texts the cache does not pay off.
  static constexpr std::size_t kMinTextBytes = 4096;

  explicit WordCache(std::size_t text_bytes)
      : entries_(text_bytes < kMinTextBytes ? 0 : std::size_t{1} << kBits) {}

  // A word as two numbers; the last byte is its length.
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    std::uint32_t begin = 0;  // offset in the output
    std::uint32_t count = 0;
  };

  bool takes(std::string_view word) const { return !entries_.empty() && word.size() < 16; }

  static Key key_of(std::string_view word) {
    char bytes[16] = {};
    std::memcpy(bytes, word.data(), word.size());
    bytes[15] = static_cast<char>(word.size());
    Key key;
    std::memcpy(&key.low, bytes, 8);
    std::memcpy(&key.high, bytes + 8, 8);
    return key;
  }

  // The only slot for a key; its entry may belong to another word.
  Entry& place(const Key& key) {
    const std::uint64_t mixed =
        (key.low ^ key.high * 0xd6e8feb86659fd93ull) * 0x9e3779b97f4a7c15ull;
    return entries_[static_cast<std::size_t>(mixed >> (64 - kBits))];
  }

 private:
  static constexpr int kBits = 13;
  std::vector<Entry> entries_;
};

}  // namespace leq
