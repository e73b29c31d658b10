// Reads a prompt from -p, -f or a pipe, and checks its text; --prompt-cache keeps the KV cache of a
// completion's prompt in a file, so that it is prefilled only once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "engine/generator.h"
#include "engine/saved_prefix.h"

namespace leq::run {

// Returns the text of a prompt file ("-": standard input), without a newline at its end. Throws
// Error if it cannot be read, is empty, too large or not UTF-8.
std::string read_prompt_text(const std::filesystem::path& path);

inline constexpr std::uint64_t kMaxPromptBytes = 64ull << 20;

// Throws Error if a prompt, or a message that is being typed, has more bytes than are accepted.
void check_prompt_size(std::size_t bytes);

// Returns all of standard input; may be empty.
std::string read_standard_input();
// The same, checked like a file.
std::string read_prompt_from_stdin();

struct PromptCacheFile {
  std::filesystem::path path;
  bool with_reply = false;
  bool read_only = false;
};

// Loads the texts of the file, so that requests can reuse their prefixes. A file of another model
// or layout, of an older version, or with a text that is too long is ignored with a note. Throws
// Error if it is damaged or not such a file. Returns the length of the common prefix of `prompt`
// and a text.
std::int64_t load_prompt_cache(const PromptCacheFile& file, const PrefixOwner& owner,
                               Generator& generator, std::span<const Token> prompt);

// Writes the file unless it already has all of `tokens`; `known` is the number that it has.
void save_prompt_cache(const PromptCacheFile& file, const PrefixOwner& owner, Generator& generator,
                       std::span<const Token> tokens, std::int64_t known);

}  // namespace leq::run
