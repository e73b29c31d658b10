// How the hidden states of a text become its embedding, as the files of a checkpoint say.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tokenizer/spec.h"

namespace leq {

enum class Pooling : std::uint8_t {
  mean,  // over all tokens
  last,  // the last token's
  cls,   // the first token's
  none,  // one vector per token
  rank,  // no vector: the model judges a query and a document
};
std::string_view pooling_name(Pooling pooling);  // ends with a zero byte
std::optional<Pooling> parse_pooling(std::string_view name);
std::string pooling_names(std::string_view separator);  // "mean, last, ..."

struct EmbeddingRules {
  std::optional<Pooling> pooling;                   // nullopt: the checkpoint does not say
  bool normalize = true;                            // scaled to a length of 1
  Token end = kNoToken;                             // added at the end of a text; kNoToken: none
  std::map<std::string, std::string> prompts = {};  // by name: what is put in front of texts

  bool operator==(const EmbeddingRules&) const = default;
};

// The section "embedding" of a .leq file. The reader throws Error naming `source`.
Json embedding_to_json(const EmbeddingRules& rules);
EmbeddingRules embedding_from_json(const Json& json, std::string_view source);
// The member "prompts", which checkpoints have too.
std::map<std::string, std::string> prompts_from_json(const Json& json, std::string_view source);

}  // namespace leq
