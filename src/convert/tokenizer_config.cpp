#include "convert/tokenizer_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"

namespace leq {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 64ull << 20;

std::optional<std::string> read_if_there(const std::filesystem::path& path) {
  if (!file_exists(path)) return std::nullopt;
  return read_file(path, kMaxConfigBytes);
}

Json read_object(const std::filesystem::path& path) {
  const auto text = read_if_there(path);
  if (!text) return Json::object();
  Json json = parse_json(*text, path.string());
  require(json.is_object(), path.string(), ": expected a JSON object, found ", json.type_name());
  return json;
}

// A token is given as a string, or as an object with "content" and flags.
AddedToken read_token(const Json& json, bool special, const std::string& source) {
  AddedToken token;
  token.special = special;
  if (json.is_string()) {
    token.content = json.get<std::string>();
    return token;
  }
  token.content = json_get<std::string>(json, "content", source);
  token.special = json_get_or<bool>(json, "special", special, source);
  token.lstrip = json_get_or<bool>(json, "lstrip", false, source);
  token.rstrip = json_get_or<bool>(json, "rstrip", false, source);
  token.single_word = json_get_or<bool>(json, "single_word", false, source);
  token.normalized = json_get_or<bool>(json, "normalized", false, source);
  return token;
}

void read_named(const Json& json, const char* key, const std::string& source, NamedToken& named) {
  const auto found = json.find(key);
  if (named.present || found == json.end()) return;
  named.present = true;
  if (!found->is_null()) named.token = read_token(*found, true, source);
}

void read_specials(const Json& json, const std::string& source, TokenizerConfig& config) {
  read_named(json, "bos_token", source, config.bos);
  read_named(json, "eos_token", source, config.eos);
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_array()) continue;
    for (const Json& entry : *found) config.special.push_back(read_token(entry, true, source));
  }
}

std::optional<bool> read_flag(const Json& json, const char* key, const std::string& source) {
  if (json.find_given(key) == nullptr) return std::nullopt;
  return json_get<bool>(json, key, source);
}

Token checked_id(std::int64_t id, const std::string& source) {
  require(id >= 0 && id < static_cast<std::int64_t>(kMaxPieces), source, ": added token with id ",
          id, ", expected 0 to ", kMaxPieces - 1);
  return static_cast<Token>(id);
}

void read_added_decoder(const Json& json, const std::string& source, TokenizerConfig& config) {
  const auto found = json.find("added_tokens_decoder");
  if (found == json.end() || !found->is_object()) return;
  for (const auto& [key, value] : found->items()) {
    const auto id = parse_int(key);
    require(id.has_value(), source, ": added_tokens_decoder: \"", printable(key), "\" is no id");
    AddedToken token = read_token(value, false, source);
    token.id = checked_id(*id, source);
    config.added.push_back(std::move(token));
  }
  std::sort(config.added.begin(), config.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

// added_tokens.json of older folders: text -> id. A token is special if another file marks it so.
void read_added_file(const std::filesystem::path& path, TokenizerConfig& config) {
  if (!config.added.empty()) return;
  const std::string source = path.string();
  const Json json = read_object(path);
  for (const auto& [key, value] : json.items()) {
    AddedToken token;
    token.content = key;
    require(value.is_number_integer(), source, ": the id of \"", printable(key),
            "\" must be a whole number");
    token.id = checked_id(value.get<std::int64_t>(), source);
    const auto is_same = [&](const AddedToken& other) { return other.content == token.content; };
    token.special = is_same(config.bos.token) || is_same(config.eos.token) ||
                    std::any_of(config.special.begin(), config.special.end(), is_same);
    config.added.push_back(std::move(token));
  }
  std::sort(config.added.begin(), config.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

// A template is a string or a list of {"name", "template"}: "default", else the first, is used.
std::string read_template(const Json& json, const std::string& source) {
  const Json* found = json.find_given("chat_template");
  if (found == nullptr) return "";
  if (found->is_string()) return found->get<std::string>();
  require(found->is_array(), source,
          ": chat_template must be a text or a list of templates, found ", found->type_name());
  std::string chosen;
  for (const Json& entry : *found) {
    const auto name = json_get<std::string>(entry, "name", source);
    if (chosen.empty() || name == "default") {
      chosen = json_get<std::string>(entry, "template", source);
    }
  }
  return chosen;
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder) {
  const auto path = folder / "tokenizer_config.json";
  const std::string source = path.string();
  const Json json = read_object(path);
  TokenizerConfig config;
  config.tokenizer_class = json_get_or<std::string>(json, "tokenizer_class", "", source);
  if (config.tokenizer_class.ends_with("Fast")) {
    config.tokenizer_class.resize(config.tokenizer_class.size() - 4);
  }
  // Without this key, transformers ignores clean_up_tokenization_spaces for BPE tokenizers.
  constexpr const char* kForcedCleanUp =
      "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
  require(!read_flag(json, kForcedCleanUp, source).value_or(false), source, ": ", kForcedCleanUp,
          " is not supported: it would take spaces out of what the model writes; set it to false");
  config.add_bos = read_flag(json, "add_bos_token", source);
  config.add_eos = read_flag(json, "add_eos_token", source);
  config.add_prefix_space = read_flag(json, "add_prefix_space", source);
  read_specials(json, source, config);
  const auto map_path = folder / "special_tokens_map.json";
  read_specials(read_object(map_path), map_path.string(), config);
  read_added_decoder(json, source, config);
  read_added_file(folder / "added_tokens.json", config);
  config.chat_template = read_template(json, source);
  const auto json_path = folder / "chat_template.json";
  const std::string other = read_template(read_object(json_path), json_path.string());
  if (!other.empty()) config.chat_template = other;
  const auto jinja_path = folder / "chat_template.jinja";
  if (auto jinja = read_if_there(jinja_path)) {
    const auto bad = first_invalid_utf8(*jinja);
    require(!bad, jinja_path.string(), ": no valid UTF-8 at byte ", bad.value_or(0));
    config.chat_template = std::move(*jinja);
  }
  return config;
}

void apply_tokenizer_config(const TokenizerConfig& config, TokenizerSpec& spec) {
  for (const AddedToken& token : config.added) add_token(spec, token, token.content);
  for (AddedToken token : config.special) {
    const auto id = find_token(spec, token.content);
    if (!id) continue;  // skipped: no embedding exists for it
    token.id = *id;
    add_token(spec, token, token.content);
  }
  const auto apply = [&](const NamedToken& named, Token& id) {
    if (!named.present) return;
    id = kNoToken;
    const std::string& content = named.token.content;
    if (content.empty()) return;
    // A named token that is not a piece gets the id after the last piece, as in transformers.
    id = find_token(spec, content).value_or(static_cast<Token>(spec.pieces.size()));
    AddedToken token = named.token;
    token.id = id;
    token.special = true;
    add_token(spec, token, content);
  };
  apply(config.bos, spec.bos);
  apply(config.eos, spec.eos);
  if (config.add_bos) spec.add_bos = *config.add_bos;
  if (config.add_eos) spec.add_eos = *config.add_eos;
}

}  // namespace leq
