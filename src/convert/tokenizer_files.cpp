#include "convert/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq {
namespace {

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
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
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

}  // namespace leq
