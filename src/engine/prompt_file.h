// A file of a prompt that was fed: its tokens, their keys and values, and the model that made them.
// The file is written atomically, and its checksum is verified when it is read.
//
//   8 bytes   "LEQPRM01"
//   u64       XXH3-64 of all bytes after this field
//   u64       the model: LeqReader::fingerprint()
//   u32 u32   types of keys and of values
//   u64 u64   number of tokens; bytes of keys and values
//   i32 ...   the tokens
//   ...       keys and values, as KvCache::save has them
//
// Numbers are little-endian. The file does not depend on the size of a context or the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "backend/kv_types.h"
#include "tokenizer/spec.h"

namespace leq {

// The model file and KV types of keys and values, which no other file or type can use.
struct PromptOwner {
  std::uint64_t model = 0;  // LeqReader::fingerprint()
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;

  bool operator==(const PromptOwner&) const = default;
};

struct SavedPrompt {
  PromptOwner owner;
  std::vector<Token> tokens;
  std::vector<std::byte> kv;  // keys and values of all tokens, as written by KvCache::save
};

std::vector<std::byte> prompt_file_bytes(const SavedPrompt& prompt);
// Throws Error naming `source` if the bytes are not such a file, are truncated or damaged. The
// contents of `kv` are checked later, when they are loaded into a cache.
SavedPrompt parse_prompt_file(std::span<const std::byte> bytes, std::string_view source);

// Splits a file of concatenated saved prompts by the sizes in their headers; does not check the
// contents. Throws Error naming `source` if a part does not begin with the magic bytes of a saved
// prompt or is truncated.
std::vector<std::span<const std::byte>> split_prompt_files(std::span<const std::byte> bytes,
                                                           std::string_view source);

// Throw Error if the file cannot be written or read, and as parse_prompt_file does.
void write_prompt_file(const std::filesystem::path& path, const SavedPrompt& prompt);
SavedPrompt read_prompt_file(const std::filesystem::path& path);

}  // namespace leq
