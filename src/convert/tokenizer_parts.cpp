#include "convert/tokenizer_parts.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/normalize.h"

namespace leq {
namespace {

// Maps characters to bytes: printable Latin-1 to itself, U+0100 and up to all other bytes.
std::map<char32_t, char> make_printable_alphabet() {
  std::map<char32_t, char> alphabet;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
    alphabet[character] = static_cast<char>(byte);
  }
  return alphabet;
}

struct NamedPreTokenizer {
  std::string_view name;
  std::string_view pattern;
  bool nfc;
};

constexpr std::array<NamedPreTokenizer, 4> kPreTokenizers = {{
    {"gpt-2", kGpt2Pattern, false},
    {"llama-3",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
    // In this pattern, letters include their combining marks.
    {"qwen35",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
     " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
}};

}  // namespace

std::optional<std::string> bytes_of_printable(std::string_view text) {
  static const std::map<char32_t, char> alphabet = make_printable_alphabet();
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) return std::nullopt;
    const auto found = alphabet.find(decode_utf8(text.substr(i)));
    if (found == alphabet.end()) return std::nullopt;
    out += found->second;
    i += length;
  }
  return out;
}

void set_pretokenizer(TokenizerSpec& spec, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& known : kPreTokenizers) {
    if (known.name == name) {
      spec.normalizers.clear();
      if (known.nfc) spec.normalizers.push_back({Normalizer::Kind::nfc, "", ""});
      PreTokenizer step;
      step.pattern = known.pattern;
      spec.pre_tokenizers = {step};
      return;
    }
    names.emplace_back(known.name);
  }
  fail(spec.source, ": pre-tokenizer \"", printable(name), "\" is not known, expected one of ",
       join(names));
}

void place_piece(TokenizerSpec& spec, Token id, std::string_view piece, TokenType type) {
  require(id >= 0 && static_cast<std::size_t>(id) < kMaxPieces, spec.source, ": token \"",
          printable(piece), "\" has id ", id, ", expected 0 to ", kMaxPieces - 1);
  const auto index = static_cast<std::size_t>(id);
  if (index >= spec.pieces.size()) {
    spec.pieces.resize(index + 1);
    spec.types.resize(index + 1, TokenType::unused);
    if (!spec.scores.empty()) spec.scores.resize(index + 1, 0.0f);
  }
  const bool taken = spec.types[index] != TokenType::unused && spec.pieces[index] != piece;
  require(!taken, spec.source, ": token \"", printable(piece), "\" has id ", id,
          ", which is already \"", printable(spec.pieces[index]), "\"");
  spec.pieces[index] = piece;
  spec.types[index] = type;
}

void add_token(TokenizerSpec& spec, AddedToken token, std::string_view content) {
  require(!content.empty() && content.size() <= kMaxPieceBytes, spec.source, ": added token ",
          token.id, " has ", content.size(), " bytes, expected 1 to ", kMaxPieceBytes);
  for (const AddedToken& known : spec.added) {
    if (spec.pieces[static_cast<std::size_t>(known.id)] == content) return;
  }
  require(spec.added.size() < kMaxAddedTokens, spec.source, ": more than ", kMaxAddedTokens,
          " added tokens");
  const auto index = static_cast<std::size_t>(token.id);
  if (index < spec.pieces.size() && spec.pieces[index] == bytes_of_printable(content)) {
    spec.pieces[index] = content;  // the vocabulary writes it in GPT-2's alphabet
  }
  TokenType type = token.special ? TokenType::control : TokenType::user_defined;
  if (token.id == spec.unknown) type = TokenType::unknown;
  place_piece(spec, token.id, content, type);
  std::string buffer;
  const NormalizeOptions whole = {
      .prepend = true, .max_bytes = longest_normalized(content.size()), .source = spec.source};
  token.content = token.normalized ? normalize(spec.normalizers, content, whole, buffer) : content;
  spec.added.push_back(std::move(token));
}

std::optional<Token> find_token(const TokenizerSpec& spec, std::string_view content) {
  for (const AddedToken& token : spec.added) {
    if (spec.pieces[static_cast<std::size_t>(token.id)] == content) return token.id;
  }
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    if (spec.types[id] != TokenType::unused && spec.pieces[id] == content) {
      return static_cast<Token>(id);
    }
  }
  return std::nullopt;
}

}  // namespace leq
