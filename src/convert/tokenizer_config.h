// Reads the files beside a tokenizer: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json and the chat template.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

// A token that a config refers to by its text.
struct NamedToken {
  bool present = false;  // the key is there
  AddedToken token;      // content is the raw text, empty for null; the id may be kNoToken
};

struct TokenizerConfig {
  std::string tokenizer_class;  // without "Fast"; empty where unknown
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_prefix_space;
  NamedToken bos;
  NamedToken eos;
  std::vector<AddedToken> added;    // with ids; content is the raw text
  std::vector<AddedToken> special;  // without ids: further special tokens
  std::string chat_template;
};

// Reads the files that exist; an absent file is no error. Throws Error naming the file.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

// Adds the config's tokens to `spec`, sets bos and eos, and add_bos and add_eos where the config
// has the keys.
void apply_tokenizer_config(const TokenizerConfig& config, TokenizerSpec& spec);

}  // namespace leq
