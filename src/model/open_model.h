// An opened .leq file: configuration, tokenizer, mapped weights, and the file's statements about
// itself.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/kv_types.h"
#include "base/json.h"
#include "format/leq_reader.h"
#include "model/model_config.h"
#include "model/pooling.h"
#include "model/weights.h"
#include "sampling/settings.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Sampling defaults and end tokens from generation_config.json; absent if the file has none.
struct GenerationDefaults {
  PerParameter<double> sampling;  // checked: each in its range
  std::vector<Token> end_tokens;
};

// Reads the sampling settings that a model may define. Each has the key of generation_config.json
// or the setting's own name. Throws Error naming `source` and the key if a value is not a number,
// not a whole number where one is needed, or out of range.
PerParameter<double> sampling_from_json(const Json& json, std::string_view SamplingParameter::*key,
                                        std::string_view source);

// Reads a token id; throws Error naming `source` if the JSON value is not a valid id.
Token token_from_json(const Json& json, std::string_view source);

Json generation_to_json(const GenerationDefaults& defaults);
GenerationDefaults generation_from_json(const Json& json, std::string_view source);

// The KV cache that a file was made for, and the error measured with it.
struct KvEvidence {
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::int64_t context = 0;  // context for which memory was planned
  double kl = 0;             // KL in nats of weights and cache together from the unquantized model
  bool operator==(const KvEvidence&) const = default;
};

Json kv_evidence_to_json(const KvEvidence& evidence);
KvEvidence kv_evidence_from_json(const Json& json, std::string_view source);

// The type of most weights, as passed to leq-quantize ("int8"): what every tool and the server call
// the type of a file. Throws Error if the file does not say it.
std::string stored_type(const LeqReader& file);

class Model {
 public:
  // Opens and checks the file. Throws Error naming the file and the cause.
  Model(const std::filesystem::path& path, const LoadOptions& options);

  const LeqReader& file() const { return file_; }
  const ModelConfig& config() const { return config_; }
  // The multi-token prediction head as a model of its own; nullptr if the file has none.
  const ModelConfig* mtp() const { return mtp_ ? &*mtp_ : nullptr; }
  const Tokenizer& tokenizer() const;  // throws Error if the file has none
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  const GenerationDefaults& generation() const { return generation_; }
  const EmbeddingRules& embedding() const { return embedding_; }
  // Tokens that end a text: those of the generation defaults or, without these, the tokenizer's.
  std::vector<Token> end_tokens() const;
  const std::optional<KvEvidence>& kv_evidence() const { return kv_evidence_; }
  const std::string& chat_template() const { return chat_template_; }
  const std::string& type() const { return type_; }  // stored_type
  std::int64_t parameters() const;
  double bits_per_weight() const;  // all tensor bytes x 8 / parameters

 private:
  LeqReader file_;
  ModelConfig config_;
  std::optional<ModelConfig> mtp_;
  std::unique_ptr<Tokenizer> tokenizer_;
  GenerationDefaults generation_;
  EmbeddingRules embedding_;
  std::optional<KvEvidence> kv_evidence_;
  std::string chat_template_;
  std::string type_;
};

}  // namespace leq
