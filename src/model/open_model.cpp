#include "model/open_model.h"

#include "base/error.h"
#include "base/json.h"
#include "model/tensor_list.h"

namespace leq {
namespace {

template <class T>
void read_optional(const Json& json, const char* key, std::optional<T>& value,
                   std::string_view source) {
  const auto found = json.find(key);
  if (found != json.end() && !found->is_null()) value = json_get<T>(json, key, source);
}

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
  if (defaults.temperature) json["temperature"] = *defaults.temperature;
  if (defaults.top_k) json["top_k"] = *defaults.top_k;
  if (defaults.top_p) json["top_p"] = *defaults.top_p;
  if (defaults.min_p) json["min_p"] = *defaults.min_p;
  if (defaults.repeat_penalty) json["repeat_penalty"] = *defaults.repeat_penalty;
  json["end_tokens"] = defaults.end_tokens;
  return json;
}

GenerationDefaults generation_from_json(const Json& json, std::string_view source) {
  GenerationDefaults defaults;
  read_optional(json, "temperature", defaults.temperature, source);
  read_optional(json, "top_k", defaults.top_k, source);
  read_optional(json, "top_p", defaults.top_p, source);
  read_optional(json, "min_p", defaults.min_p, source);
  read_optional(json, "repeat_penalty", defaults.repeat_penalty, source);
  const auto ends = json.find("end_tokens");
  if (ends == json.end()) return defaults;
  require(ends->is_array(), source, ": end_tokens: expected a list of ids");
  for (const auto& id : *ends) {
    require(id.is_number_integer(), source, ": end_tokens: expected whole numbers");
    defaults.end_tokens.push_back(id.get<Token>());
  }
  return defaults;
}

Model::Model(const std::filesystem::path& path, const LoadOptions& options) : file_(path, options) {
  config_ = config_from_json(section(file_, "config"), file_.name() + ": config");
  generation_ = generation_from_json(section(file_, "generation"), file_.name() + ": generation");
  const Json& metadata = file_.metadata();
  chat_template_ = json_get_or<std::string>(metadata, "chat_template", "", file_.name());
  type_ = json_get<std::string>(section(file_, "provenance"), "type", file_.name());
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

std::int64_t Model::parameters() const { return parameter_count(config_); }

double Model::bits_per_weight() const {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : file_.tensors()) bytes += tensor.bytes();
  return static_cast<double>(bytes) * 8.0 / static_cast<double>(parameters());
}

}  // namespace leq
