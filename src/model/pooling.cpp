#include "model/pooling.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "model/open_model.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"mean", "last", "cls", "none", "rank"};

}  // namespace

std::string_view pooling_name(Pooling pooling) { return kNames[static_cast<std::size_t>(pooling)]; }

std::optional<Pooling> parse_pooling(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Pooling>(found - kNames.begin());
}

std::string pooling_names(std::string_view separator) {
  return join(std::vector<std::string>(kNames.begin(), kNames.end()), separator);
}

Json embedding_to_json(const EmbeddingRules& rules) {
  Json json = {{"normalize", rules.normalize}};
  if (rules.pooling) json["pooling"] = pooling_name(*rules.pooling);
  if (rules.end != kNoToken) json["end_token"] = rules.end;
  for (const auto& [name, text] : rules.prompts) json["prompts"][name] = text;
  return json;
}

std::map<std::string, std::string> prompts_from_json(const Json& json, std::string_view source) {
  std::map<std::string, std::string> prompts;
  const Json* given = json.find_given("prompts");
  if (given == nullptr) return prompts;
  require(given->is_object(), source, ": prompts: expected an object");
  for (const auto& [name, text] : given->members()) {
    require(text.is_string(), source, ": prompts: ", printable(name), ": expected a text");
    prompts[name] = text.text();
  }
  return prompts;
}

EmbeddingRules embedding_from_json(const Json& json, std::string_view source) {
  EmbeddingRules rules;
  rules.normalize = json_get<bool>(json, "normalize", source);
  if (json.contains("pooling")) {
    const auto name = json_get<std::string>(json, "pooling", source);
    rules.pooling = parse_pooling(name);
    require(rules.pooling.has_value(), source, ": pooling ", printable(name), ": expected one of ",
            pooling_names(", "));
  }
  if (const Json* end = json.find_given("end_token")) {
    rules.end = token_from_json(*end, std::string(source) + ": end_token");
  }
  rules.prompts = prompts_from_json(json, source);
  return rules;
}

}  // namespace leq
