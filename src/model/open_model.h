// An opened .leq file: configuration, tokenizer, weights in place, and what the file says of
// itself.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "format/leq_reader.h"
#include "model/memory_plan.h"
#include "model/model_config.h"
#include "model/sampling_settings.h"
#include "model/weights.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Sampling defaults and end tokens from generation_config.json; absent where the file has none.
struct GenerationDefaults {
  PerKnob<double> sampling;  // each in its range
  std::vector<Token> end_tokens;
};

// The knobs that models may say, each under one of its names: the key in generation_config.json, or
// its own. Throws Error naming `source` and the key of what is no number, no whole one, or out of
// its range.
PerKnob<double> sampling_from_json(const Json& json, std::string_view SamplingKnob::*key,
                                   std::string_view source);

// The id of a token; throws Error naming `source` where it is none that fits.
Token token_from_json(const Json& json, std::string_view source);

Json generation_to_json(const GenerationDefaults& defaults);
GenerationDefaults generation_from_json(const Json& json, std::string_view source);

// The KV cache that a file was made for, and what was measured with it.
struct KvEvidence {
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::int64_t context = 0;  // that memory was planned for
  double kl = 0;             // of weights and cache together from the unquantized model, nats
  bool operator==(const KvEvidence&) const = default;
};

Json kv_evidence_to_json(const KvEvidence& evidence);
KvEvidence kv_evidence_from_json(const Json& json, std::string_view source);

class Model {
 public:
  // Opens and checks the file. Throws Error naming the file and what is wrong.
  Model(const std::filesystem::path& path, const LoadOptions& options);

  const LeqReader& file() const { return file_; }
  const ModelConfig& config() const { return config_; }
  // Its head of multi-token prediction as a model; nullptr where it has none.
  const ModelConfig* mtp() const { return mtp_ ? &*mtp_ : nullptr; }
  const Tokenizer& tokenizer() const;  // throws Error where the file carries none
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  const GenerationDefaults& generation() const { return generation_; }
  // What ends a text: the generation defaults' end tokens, else the tokenizer's own.
  std::vector<Token> end_tokens() const;
  const std::optional<KvEvidence>& kv_evidence() const { return kv_evidence_; }
  const std::string& chat_template() const { return chat_template_; }
  const std::string& type() const { return type_; }  // "int8", as leq-quantize was told
  std::int64_t parameters() const;
  double bits_per_weight() const;  // all tensor bytes x 8 / parameters

 private:
  LeqReader file_;
  ModelConfig config_;
  std::optional<ModelConfig> mtp_;
  std::unique_ptr<Tokenizer> tokenizer_;
  GenerationDefaults generation_;
  std::optional<KvEvidence> kv_evidence_;
  std::string chat_template_;
  std::string type_;
};

}  // namespace leq
