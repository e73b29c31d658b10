// Reads the text rules of a tokenizer.json: normalizer, pre_tokenizer, decoder and post_processor.
#pragma once

#include <string_view>

#include "base/json.h"
#include "tokenizer/spec.h"

namespace leq {

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

}  // namespace leq
