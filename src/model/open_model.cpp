#include "model/open_model.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/linear_sites.h"

namespace leq {
namespace {

const Json& section(const LeqReader& file, const char* key) {
  const Json& metadata = file.metadata();
  const auto found = metadata.find(key);
  require(found != metadata.end() && found->is_object(), file.name(), ": the header has no \"", key,
          "\" section");
  return *found;
}

}  // namespace

Json generation_to_json(const GenerationDefaults& defaults) {
  Json json = Json::object();
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const auto value = defaults.sampling[parameter.name];
    if (!value) continue;
    Json& entry = json[std::string(parameter.name)];
    if (parameter.is_whole()) {
      entry = static_cast<std::int64_t>(*value);
    } else {
      entry = *value;
    }
  }
  json["end_tokens"] = defaults.end_tokens;
  return json;
}

PerParameter<double> sampling_from_json(const Json& json, std::string_view SamplingParameter::*key,
                                        std::string_view source) {
  PerParameter<double> values;
  for (const SamplingParameter& parameter : kSamplingParameters) {
    if (parameter.config_key.empty()) continue;
    const std::string name(parameter.*key);
    const Json* found = json.find_given(name);
    if (found == nullptr) continue;
    const double value =
        parameter.is_whole()
            ? static_cast<double>(json_get<std::int64_t>(json, name.c_str(), source))
            : json_get<double>(json, name.c_str(), source);
    require(value >= parameter.least && value <= parameter.most && value != parameter.refused,
            source, ": ", name, " = ", found->dump(), ": expected ", parameter.range);
    values[parameter.name] = value;
  }
  return values;
}

Token token_from_json(const Json& json, std::string_view source) {
  require(json.is_number_integer(), source, ": expected the id of a token, found ",
          json.type_name());
  const auto id = json.get<std::int64_t>();
  const bool wraps = json.is_number_unsigned() && id < 0;
  require(!wraps && std::in_range<Token>(id), source, ": no token has the id ", json.dump());
  return static_cast<Token>(id);
}

GenerationDefaults generation_from_json(const Json& json, std::string_view source) {
  GenerationDefaults defaults;
  defaults.sampling = sampling_from_json(json, &SamplingParameter::name, source);
  const auto ends = json.find("end_tokens");
  if (ends == json.end()) return defaults;
  const std::string place = std::string(source) + ": end_tokens";
  require(ends->is_array(), place, ": expected a list of ids");
  for (const auto& id : *ends) defaults.end_tokens.push_back(token_from_json(id, place));
  return defaults;
}

Json kv_evidence_to_json(const KvEvidence& evidence) {
  return {{"keys", kv_type_name(evidence.key_type)},
          {"values", kv_type_name(evidence.value_type)},
          {"context", evidence.context},
          {"kl", evidence.kl}};
}

KvEvidence kv_evidence_from_json(const Json& json, std::string_view source) {
  const auto type = [&](const char* key) {
    const auto name = json_get<std::string>(json, key, source);
    for (const KvScheme& scheme : kKvSchemes) {
      if (scheme.name == name) return scheme.type;
    }
    fail(source, ": ", key, " ", printable(name), ": expected one of ", kv_type_names(", "));
  };
  KvEvidence evidence;
  evidence.key_type = type("keys");
  evidence.value_type = type("values");
  evidence.context = json_get<std::int64_t>(json, "context", source);
  evidence.kl = json_get<double>(json, "kl", source);
  require(evidence.context > 0, source, ": context ", evidence.context,
          ": expected a positive number");
  require(evidence.kl >= 0 && evidence.kl < 1e6, source, ": kl ", evidence.kl,
          ": expected nats from 0 on");
  return evidence;
}

std::string stored_type(const LeqReader& file) {
  return json_get<std::string>(section(file, "provenance"), "type", file.name());
}

Model::Model(const std::filesystem::path& path, const LoadOptions& options) : file_(path, options) {
  config_ = config_from_json(section(file_, "config"), file_.name() + ": config");
  check_tensors(file_, config_);
  if (config_.mtp) mtp_ = mtp_model(config_);
  generation_ = generation_from_json(section(file_, "generation"), file_.name() + ": generation");
  for (const Token id : generation_.end_tokens) {
    require(id >= 0 && id < config_.vocab, file_.name(), ": generation: end token ", id,
            ": expected an id from 0 to ", config_.vocab - 1);
  }
  const Json& metadata = file_.metadata();
  if (metadata.contains("embedding")) {
    const std::string place = file_.name() + ": embedding";
    embedding_ = embedding_from_json(section(file_, "embedding"), place);
    require(embedding_.end >= kNoToken && embedding_.end < config_.vocab, place, ": end_token ",
            embedding_.end, ": expected an id below ", config_.vocab);
  }
  if (metadata.contains("kv_cache")) {
    kv_evidence_ = kv_evidence_from_json(section(file_, "kv_cache"), file_.name() + ": kv_cache");
  }
  chat_template_ = json_get_or<std::string>(metadata, "chat_template", "", file_.name());
  type_ = stored_type(file_);
  const BlobFinder tables = [this](std::string_view name) { return file_.blob(name); };
  if (json_get_or<bool>(metadata, "tokenizer", false, file_.name())) {
    tokenizer_ = std::make_unique<Tokenizer>(tables, file_.name());
    require(static_cast<std::int64_t>(tokenizer_->size()) >= 1, file_.name(),
            ": the tokenizer has no tokens");
  }
}

const Tokenizer& Model::tokenizer() const {
  require(tokenizer_ != nullptr, file_.name(),
          ": the file carries no tokenizer; quantize it again from a folder that has one");
  return *tokenizer_;
}

std::vector<Token> Model::end_tokens() const {
  std::vector<Token> tokens = generation_.end_tokens;
  if (tokens.empty() && tokenizer().eos() != kNoToken) tokens.push_back(tokenizer().eos());
  return tokens;
}

std::int64_t Model::parameters() const { return parameter_count(config_); }

double Model::bits_per_weight() const {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : file_.tensors()) bytes += tensor.bytes();
  return static_cast<double>(bytes) * 8.0 / static_cast<double>(parameters());
}

}  // namespace leq
