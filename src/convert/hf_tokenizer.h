// Reads tokenizer.json of Hugging Face's tokenizers, part by part.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "tokenizer/spec.h"

namespace leq {

// Patterns of tokenizer.json have Oniguruma's syntax for Ruby. Other regex engines accept some of
// these patterns but interpret them differently.
// The pattern for Pattern (tokenizer/pattern.h): \h becomes [0-9a-fA-F], {,n} becomes {0,n}, \v
// \x{b}; \w has marks, too; ^ and $ match at each line. Throws Error naming `source` and what has
// no equivalent.
std::string translated_oniguruma(std::string_view pattern, std::string_view source);

// The split pattern of Mistral's tekken tokenizers. Folders written by transformers before 5.0
// contain another model's pattern, which tokenizes some texts differently (its fix_mistral_regex).

// A message for users if a folder with this config.json may have the wrong pattern, or "".
std::string mistral_pattern_note(const Json& config, const TokenizerSpec& spec);

// Sets Mistral's own split pattern. Throws Error if the tokenizer has no split step to replace.
void fix_mistral_pattern(TokenizerSpec& spec);

// Reads the text rules of a tokenizer.json: normalizer, pre_tokenizer, decoder and post_processor.

// Each function reads one member of a tokenizer.json into `spec`; null means that there is none.
// Throws Error naming `source` and the unsupported type ("normalizer type NFKC").
void read_normalizer(const Json& json, std::string_view source, TokenizerSpec& spec);

// Sets spec.kind to byte_bpe if the chain ends in ByteLevel.
void read_pre_tokenizer(const Json& json, std::string_view source, TokenizerSpec& spec);

// Sets strip_leading_space.
void read_decoder(const Json& json, std::string_view source, TokenizerSpec& spec);

// The tokens that a post_processor adds around a text; `present` is false for null.
struct AroundText {
  bool present = false;
  Token front = kNoToken;
  Token back = kNoToken;
};
AroundText read_post_processor(const Json& json, std::string_view source);

// Reads a Hugging Face tokenizer.json (a BPE model with its text rules) into a TokenizerSpec.
struct HfTokenizer {
  TokenizerSpec spec;  // without bos and eos, which are in tokenizer_config.json
  AroundText around;   // the tokens that the post_processor adds
};

// `text`: the content of the file; `source`: its name for errors. Throws Error naming any
// unsupported setting as it is named in the file.
HfTokenizer read_hf_tokenizer(std::string_view text, std::string_view source);

}  // namespace leq
