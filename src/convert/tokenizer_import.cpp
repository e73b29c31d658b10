#include "convert/tokenizer_import.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/hf_tokenizer.h"
#include "convert/sentencepiece_model.h"
#include "convert/tokenizer_parts.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/spec.h"

namespace leq {
namespace {

// --- the files next to a tokenizer: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json and the chat template

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
  if (!json.is_string()) return read_token_flags(json, special, false, source);
  AddedToken token;
  token.special = special;
  token.content = json.get<std::string>();
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

void read_added_decoder(const Json& json, const std::string& source, TokenizerConfig& config) {
  const auto found = json.find("added_tokens_decoder");
  if (found == json.end() || !found->is_object()) return;
  for (const auto& [key, value] : found->items()) {
    const auto id = parse_int(key);
    require(id.has_value(), source, ": added_tokens_decoder: \"", printable(key), "\" is no id");
    AddedToken token = read_token(value, false, source);
    token.id = checked_token_id(*id, source);
    config.added.push_back(std::move(token));
  }
  std::ranges::sort(config.added, {}, &AddedToken::id);
}

// added_tokens.json of older folders: text -> id. A token is special if another file marks it so.
void read_added_file(const std::filesystem::path& path, TokenizerConfig& config) {
  if (!config.added.empty()) return;
  const std::string source = path.string();
  const Json json = read_object(path);
  std::set<std::string_view> special = {config.bos.token.content, config.eos.token.content};
  for (const AddedToken& token : config.special) special.insert(token.content);
  for (const auto& [key, value] : json.items()) {
    AddedToken token;
    token.content = key;
    require(value.is_number_integer(), source, ": the id of \"", printable(key),
            "\" must be a whole number");
    token.id = checked_token_id(value.get<std::int64_t>(), source);
    token.special = special.contains(key);
    config.added.push_back(std::move(token));
  }
  std::ranges::sort(config.added, {}, &AddedToken::id);
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

// Reads those files that exist; a missing file is no error. Throws Error naming the file.
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

// Adds the config's tokens to `spec`; sets bos and eos, and also add_bos and add_eos if the config
// has these keys.
void apply_tokenizer_config(const TokenizerConfig& config, TokenizerSpec& spec) {
  TokenAdder adder(spec);
  for (const AddedToken& token : config.added) adder.add(token, token.content);
  for (AddedToken token : config.special) {
    const auto id = adder.find(token.content);
    if (!id) continue;  // skipped: no embedding exists for it
    token.id = *id;
    adder.add(token, token.content);
  }
  const auto apply = [&](const NamedToken& named, Token& id) {
    if (!named.present) return;
    id = kNoToken;
    const std::string& content = named.token.content;
    if (content.empty()) return;
    // A named token that is not a piece gets the id after the last piece, as in transformers.
    id = adder.find(content).value_or(static_cast<Token>(spec.pieces.size()));
    AddedToken token = named.token;
    token.id = id;
    token.special = true;
    adder.add(token, content);
  };
  apply(config.bos, spec.bos);
  apply(config.eos, spec.eos);
  if (config.add_bos) spec.add_bos = *config.add_bos;
  if (config.add_eos) spec.add_eos = *config.add_eos;
}

// --- which files are a tokenizer

constexpr std::size_t kMaxFolderFiles = 4096;
constexpr std::size_t kProbedKeys = 64;
constexpr std::size_t kProbedLines = 8;
constexpr std::size_t kProbedBytes = 65536;

struct KeyProbe {
  std::string_view key;
  char value = '\0';  // first character of the value
};

std::size_t skip_space(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// The offset after the string that begins at text[at] == '"'; nullopt if it is unterminated.
std::optional<std::size_t> skip_string(std::string_view text, std::size_t at) {
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  return std::nullopt;
}

// The offset of the ',' or '}' after a value in an object.
std::optional<std::size_t> skip_value(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      const auto end = skip_string(text, at);
      if (!end) return std::nullopt;
      at = *end;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}')) return at;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++at;
  }
  return std::nullopt;
}

// The first few keys of a JSON object; empty for any other text.
std::vector<KeyProbe> top_level_keys(std::string_view text) {
  std::vector<KeyProbe> keys;
  std::size_t at = skip_space(text, 0);
  if (at == text.size() || text[at] != '{') return {};
  while (keys.size() < kProbedKeys) {
    at = skip_space(text, at + 1);
    if (at == text.size() || text[at] != '"') return keys;
    const auto key_end = skip_string(text, at);
    if (!key_end) return {};
    const std::string_view key = text.substr(at + 1, *key_end - at - 2);
    at = skip_space(text, *key_end);
    if (at == text.size() || text[at] != ':') return {};
    at = skip_space(text, at + 1);
    if (at == text.size()) return {};
    keys.push_back({key, text[at]});
    const auto end = skip_value(text, at);
    if (!end) return {};
    at = *end;
    if (text[at] == '}') return keys;
  }
  return keys;
}

TokenizerFormat json_format(std::string_view content) {
  const auto keys = top_level_keys(content);
  const auto has = [&](std::string_view name) {
    return std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return key.key == name; });
  };
  if (has("model") && (has("added_tokens") || has("pre_tokenizer") || has("decoder"))) {
    return TokenizerFormat::tokenizer_json;
  }
  const bool all_ids = std::all_of(keys.begin(), keys.end(), [](const KeyProbe& key) {
    return key.value >= '0' && key.value <= '9';
  });
  return !keys.empty() && all_ids ? TokenizerFormat::vocabulary : TokenizerFormat::none;
}

bool is_base64(std::string_view word) {
  return !word.empty() && word.size() % 4 == 0 &&
         word.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") ==
             std::string_view::npos;
}

// For lines of two words: either ranks (base64 and a number) or merges.
TokenizerFormat line_format(std::string_view content) {
  if (content.starts_with("#version")) return TokenizerFormat::merges;
  content = content.substr(0, kProbedBytes);
  std::size_t lines = 0;
  std::size_t ranks = 0;
  while (!content.empty() && lines < kProbedLines) {
    const std::string_view line = next_line(content);
    const auto words = split(line, " ");
    if (words.size() != 2 || words[0].empty() || words[1].empty()) return TokenizerFormat::none;
    if (first_invalid_utf8(line)) return TokenizerFormat::none;
    ++lines;
    if (is_base64(words[0]) && parse_int(words[1])) ++ranks;
  }
  if (lines == 0) return TokenizerFormat::none;
  return ranks == lines ? TokenizerFormat::ranks : TokenizerFormat::merges;
}

// A sentencepiece model begins with field 1, a piece, which begins with its own field 1.
bool is_sentencepiece(std::string_view content) {
  if (content.size() < 4 || content[0] != '\x0a') return false;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(content[i]); };
  if (byte(1) >= 0x80) return content[3] == '\x0a';  // the length has two bytes
  return content[2] == '\x0a' && (byte(3) >= 0x80 || byte(3) + 2 <= byte(1));
}

// File names that take precedence if a folder contains several files of one format.
struct UsualNames {
  TokenizerFormat format;
  std::array<std::string_view, 3> names;
};
constexpr std::array<UsualNames, 5> kUsualNames = {{
    {TokenizerFormat::tokenizer_json, {"tokenizer.json"}},
    {TokenizerFormat::sentencepiece, {"tokenizer.model", "spiece.model"}},
    {TokenizerFormat::ranks, {"tokenizer.model", "qwen.tiktoken"}},
    {TokenizerFormat::vocabulary, {"vocab.json", "encoder.json"}},
    {TokenizerFormat::merges, {"merges.txt", "vocab.bpe"}},
}};

std::vector<TokenizerFile> scan_folder(const std::filesystem::path& folder) {
  std::vector<TokenizerFile> found;
  const std::vector<std::string> names = file_names(folder);
  require(names.size() <= kMaxFolderFiles, folder.string(), ": ", names.size(), " files, at most ",
          kMaxFolderFiles, " are looked at; give the tokenizer file itself");
  for (const std::string& name : names) {
    const std::filesystem::path path = folder / name;
    std::error_code unknown;
    // added_tokens.json is skipped: it looks like a vocabulary but only extends one.
    if (!std::filesystem::is_regular_file(path, unknown) || name == "added_tokens.json") continue;
    const MappedFile file(path);
    const auto format = tokenizer_format(as_text(file.bytes()));
    if (format != TokenizerFormat::none) found.push_back({path, format});
  }
  return found;
}

std::optional<TokenizerFile> choose(const std::vector<TokenizerFile>& files,
                                    std::initializer_list<TokenizerFormat> formats) {
  std::vector<TokenizerFile> fitting;
  for (const auto& file : files) {
    if (std::find(formats.begin(), formats.end(), file.format) == formats.end()) continue;
    fitting.push_back(file);
  }
  for (const auto& usual : kUsualNames) {
    for (const auto name : usual.names) {
      for (const auto& file : fitting) {
        if (!name.empty() && file.format == usual.format && file.path.filename() == name)
          return file;
      }
    }
  }
  if (fitting.empty()) return std::nullopt;
  require(fitting.size() == 1, fitting[0].path.parent_path().string(),
          ": holds several tokenizers, among them ", fitting[0].path.filename().string(), " and ",
          fitting.back().path.filename().string(), "; give the path of one");
  return fitting[0];
}

TokenizerFiles with_merges(const TokenizerFile& vocabulary, const std::vector<TokenizerFile>& all) {
  const auto merges = choose(all, {TokenizerFormat::merges});
  require(merges.has_value(), vocabulary.path.string(),
          ": a vocabulary without merges; expected a merges.txt beside it");
  return {vocabulary, merges->path};
}

TokenizerFiles find_in_folder(const std::filesystem::path& folder) {
  const auto all = scan_folder(folder);
  // A tokenizer.json is always used, even if it does not look like one, so that its reader reports
  // the error.
  if (const auto json = folder / "tokenizer.json"; file_exists(json)) {
    return {{json, TokenizerFormat::tokenizer_json}, {}};
  }
  if (const auto json = choose(all, {TokenizerFormat::tokenizer_json})) return {*json, {}};
  const auto model = choose(all, {TokenizerFormat::sentencepiece, TokenizerFormat::ranks});
  if (model) return {*model, {}};
  if (const auto vocabulary = choose(all, {TokenizerFormat::vocabulary})) {
    return with_merges(*vocabulary, all);
  }
  fail(folder.string(),
       ": no tokenizer found; expected tokenizer.json, tokenizer.model, a tiktoken rank file, or "
       "vocab.json with merges.txt");
}

}  // namespace

TokenizerFormat tokenizer_format(std::string_view content) {
  const std::size_t start = skip_space(content, 0);
  if (start < content.size() && content[start] == '{') return json_format(content);
  if (is_sentencepiece(content)) return TokenizerFormat::sentencepiece;
  return line_format(content);
}

TokenizerFiles find_tokenizer_files(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  require(file_exists(path), ErrorKind::io, path.string(), ": no such file or folder");
  if (std::filesystem::is_directory(status)) return find_in_folder(path);
  const MappedFile file(path);
  const TokenizerFile self{path, tokenizer_format(as_text(file.bytes()))};
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  switch (self.format) {
    case TokenizerFormat::vocabulary:
      return with_merges(self, scan_folder(folder));
    case TokenizerFormat::merges: {
      const auto vocabulary = choose(scan_folder(folder), {TokenizerFormat::vocabulary});
      require(vocabulary.has_value(), path.string(),
              ": merges without a vocabulary; expected a vocab.json beside them");
      return {*vocabulary, path};
    }
    case TokenizerFormat::none:
      fail(path.string(),
           ": not a tokenizer file; expected tokenizer.json, tokenizer.model, a "
           "tiktoken rank file, vocab.json or merges.txt");
    default:
      return {self, {}};
  }
}

namespace {

// The defaults of a Hugging Face tokenizer class for settings that the files do not specify.
struct TokenizerClass {
  std::string_view name;
  bool add_bos;
  std::string_view pretokenizer;  // for vocab.json + merges.txt; empty: no such class
};
constexpr std::array<TokenizerClass, 9> kClasses = {{
    {"GPT2Tokenizer", false, "gpt-2"},
    {"CodeGenTokenizer", false, "gpt-2"},
    {"GPTNeoXTokenizer", false, "gpt-2"},
    {"Qwen2Tokenizer", false, "qwen2"},
    {"Qwen3_5Tokenizer", false, "qwen35"},
    {"PreTrainedTokenizer", false, "gpt-2"},
    {"LlamaTokenizer", true, ""},
    {"CodeLlamaTokenizer", true, ""},
    {"GemmaTokenizer", true, ""},
}};

const TokenizerClass* find_class(std::string_view name) {
  const auto* found = std::ranges::find(kClasses, name, &TokenizerClass::name);
  return found == kClasses.end() ? nullptr : found;
}

bool class_adds_bos(const TokenizerConfig& config, bool otherwise) {
  const TokenizerClass* known = find_class(config.tokenizer_class);
  return known == nullptr ? otherwise : known->add_bos;
}

TokenizerSpec import_json(const TokenizerFile& file, const TokenizerConfig& config, Token& end) {
  const std::string text = read_file(file.path, kMaxTokenizerFileBytes);
  HfTokenizer read = read_hf_tokenizer(text, file.path.string());
  TokenizerSpec& spec = read.spec;
  spec.bos = read.around.front;
  spec.eos = read.around.back;
  spec.add_bos =
      read.around.present ? read.around.front != kNoToken : class_adds_bos(config, false);
  spec.add_eos = read.around.back != kNoToken;
  end = read.around.back;
  return std::move(spec);
}

TokenizerSpec import_sentencepiece(const TokenizerFile& file, const TokenizerConfig& config) {
  const std::string bytes = read_file(file.path, kMaxTokenizerFileBytes);
  TokenizerSpec spec = read_sentencepiece_model(as_bytes(bytes), file.path.string());
  spec.add_bos = class_adds_bos(config, true);
  if (config.add_prefix_space == false) {
    std::erase_if(spec.normalizers,
                  [](const auto& step) { return step.kind == Normalizer::Kind::prepend; });
    spec.strip_leading_space = false;
  }
  return spec;
}

TokenizerSpec import_ranks(const TokenizerFile& file, std::string_view pretokenizer) {
  const std::string text = read_file(file.path, kMaxTokenizerFileBytes);
  return read_rank_file(text, file.path.string(), pretokenizer);
}

// The default token of GPT-2's and Qwen's classes, used if no file names one; if the vocabulary
// lacks it, it gets the id after the last piece.
void name_end_of_text(const std::string& tokenizer_class, TokenizerConfig& config) {
  const auto name = [](NamedToken& named) {
    if (named.present) return;
    named.present = true;
    named.token.content = "<|endoftext|>";
  };
  if (tokenizer_class == "GPT2Tokenizer") name(config.bos);
  name(config.eos);
}

TokenizerSpec import_vocab_merges(const TokenizerFiles& files, TokenizerConfig& config,
                                  std::string_view pretokenizer) {
  TokenizerSpec spec = read_vocab_merges(
      read_file(files.main.path, kMaxTokenizerFileBytes), files.main.path.string(),
      read_file(files.merges, kMaxTokenizerFileBytes), files.merges.string());
  if (config.tokenizer_class.empty()) config.tokenizer_class = "GPT2Tokenizer";
  if (pretokenizer.empty()) {
    const TokenizerClass* known = find_class(config.tokenizer_class);
    require(known != nullptr && !known->pretokenizer.empty(), files.main.path.string(),
            ": the pre-tokenizer of tokenizer_class ", printable(config.tokenizer_class),
            " is not known; name one with ", Setting{"pretokenizer"});
    pretokenizer = known->pretokenizer;
  }
  set_pretokenizer(spec, pretokenizer);
  if (config.add_prefix_space == true) {
    PreTokenizer step;
    step.kind = PreTokenizer::Kind::prefix_space;
    spec.pre_tokenizers.insert(spec.pre_tokenizers.begin(), step);
  }
  name_end_of_text(config.tokenizer_class, config);
  return spec;
}

TokenizerSpec import_file(const TokenizerFiles& files, TokenizerConfig& config,
                          std::string_view pretokenizer, Token& end) {
  switch (files.main.format) {
    case TokenizerFormat::tokenizer_json:
      return import_json(files.main, config, end);
    case TokenizerFormat::sentencepiece:
      return import_sentencepiece(files.main, config);
    case TokenizerFormat::ranks:
      return import_ranks(files.main, pretokenizer);
    default:
      return import_vocab_merges(files, config, pretokenizer);
  }
}

}  // namespace

ImportedTokenizer import_tokenizer(const std::filesystem::path& path,
                                   std::string_view pretokenizer) {
  const TokenizerFiles files = find_tokenizer_files(path);
  const auto folder = files.main.path.has_parent_path() ? files.main.path.parent_path()
                                                        : std::filesystem::path(".");
  TokenizerConfig config = read_tokenizer_config(folder);
  ImportedTokenizer imported;
  imported.file = files.main.path;
  imported.spec = import_file(files, config, pretokenizer, imported.end);
  apply_tokenizer_config(config, imported.spec);
  if (imported.spec.bos == kNoToken) imported.spec.add_bos = false;
  if (imported.spec.eos == kNoToken) imported.spec.add_eos = false;
  if (imported.end == kNoToken && imported.spec.add_eos) imported.end = imported.spec.eos;
  // Compiles the patterns immediately, so that errors name the tokenizer's file.
  const PreTokenizerChain checked(imported.spec.pre_tokenizers, files.main.path.string());
  imported.spec.source = files.main.path.filename().string();
  imported.chat_template = config.chat_template;
  return imported;
}

}  // namespace leq
