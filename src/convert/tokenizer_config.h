// Reads the files next to a tokenizer: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json and the chat template.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

// A token that a config references by its text.
struct NamedToken {
  bool present = false;  // whether the config has the key
  AddedToken token;      // content is the raw text, empty for null; the id may be kNoToken
};

struct TokenizerConfig {
  std::string tokenizer_class;  // without "Fast"; empty if unknown
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_prefix_space;
  NamedToken bos;
  NamedToken eos;
  std::vector<AddedToken> added;    // have ids; content is the raw text
  std::vector<AddedToken> special;  // further special tokens, without ids
  std::string chat_template;
};

// Reads those files that exist; a missing file is no error. Throws Error naming the file.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

// Adds the config's tokens to `spec`; sets bos and eos, and also add_bos and add_eos if the config
// has these keys.
void apply_tokenizer_config(const TokenizerConfig& config, TokenizerSpec& spec);

}  // namespace leq
