#include "convert/tokenizer_parts.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/pretokenize.h"

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
  bool nfc;
  std::array<std::string_view, 5> patterns;  // steps, each of which splits the pieces of the former
};

constexpr std::array<NamedPreTokenizer, 7> kPreTokenizers = {{
    {"gpt-2", false, {kGpt2Pattern}},
    {"llama-3",
     false,
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"qwen2",
     true,
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    // In this pattern, letters include their combining marks.
    {"qwen35",
     true,
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
      " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"gpt-4o",
     false,
     {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"seed-coder",
     false,
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
      " ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"deepseek-coder",
     false,
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"}},
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

std::vector<std::string> pretokenizer_names() {
  std::vector<std::string> names;
  for (const auto& known : kPreTokenizers) names.emplace_back(known.name);
  return names;
}

void set_pretokenizer(TokenizerSpec& spec, std::string_view name) {
  for (const auto& known : kPreTokenizers) {
    if (known.name == name) {
      spec.normalizers.clear();
      if (known.nfc) spec.normalizers.push_back({Normalizer::Kind::nfc, "", ""});
      spec.pre_tokenizers.clear();
      for (const std::string_view pattern : known.patterns) {
        if (pattern.empty()) break;
        PreTokenizer step;
        step.pattern = pattern;
        spec.pre_tokenizers.push_back(step);
      }
      return;
    }
  }
  fail(spec.source, ": pre-tokenizer \"", printable(name), "\" is not known, expected one of ",
       join(pretokenizer_names()));
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

void place_printable(TokenizerSpec& spec, Token id, std::string_view text) {
  const auto bytes = bytes_of_printable(text);
  // Only normal pieces are looked up in texts.
  place_piece(spec, id, bytes ? *bytes : text, bytes ? TokenType::normal : TokenType::user_defined);
}

std::size_t SeededHash::operator()(std::string_view text) const {
  static const std::uint64_t seed = std::random_device()() * 0x9e3779b97f4a7c15ull;
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

TokenAdder::TokenAdder(TokenizerSpec& spec) : spec_(spec) {
  for (const AddedToken& token : spec.added) {
    added_.emplace(spec.pieces[static_cast<std::size_t>(token.id)], token.id);
  }
}

std::optional<Token> TokenAdder::find(std::string_view content) {
  if (const auto found = added_.find(content); found != added_.end()) return found->second;
  if (pieces_.empty()) {
    for (std::size_t id = 0; id < spec_.pieces.size(); ++id) {
      if (spec_.types[id] == TokenType::unused) continue;
      pieces_.emplace(spec_.pieces[id], static_cast<Token>(id));
    }
  }
  const auto found = pieces_.find(content);
  // A piece may have been replaced since by the text of an added token.
  const bool is_found =
      found != pieces_.end() && spec_.pieces[static_cast<std::size_t>(found->second)] == content;
  return is_found ? std::optional(found->second) : std::nullopt;
}

void TokenAdder::add(AddedToken token, std::string_view content) {
  const std::string& source = spec_.source;
  require(!content.empty() && content.size() <= kMaxPieceBytes, source, ": added token ", token.id,
          " has ", content.size(), " bytes, expected 1 to ", kMaxPieceBytes);
  if (added_.contains(content)) return;
  require(spec_.added.size() < kMaxAddedTokens, source, ": more than ", kMaxAddedTokens,
          " added tokens");
  const auto index = static_cast<std::size_t>(token.id);
  const bool is_placed = index < spec_.pieces.size();
  if (is_placed && spec_.pieces[index] == bytes_of_printable(content)) {
    spec_.pieces[index] = content;  // the vocabulary writes it in GPT-2's alphabet
  }
  TokenType type = token.special ? TokenType::control : TokenType::user_defined;
  // A piece of the model remains one where it is not matched: within a word.
  if (!token.special && is_placed && spec_.types[index] == TokenType::normal) {
    type = TokenType::normal;
  }
  if (token.id == spec_.unknown) type = TokenType::unknown;
  place_piece(spec_, token.id, content, type);
  std::string buffer;
  const NormalizeOptions whole = {
      .prepend = true, .max_bytes = longest_normalized(content.size()), .source = source};
  token.content = token.normalized ? normalize(spec_.normalizers, content, whole, buffer) : content;
  added_.emplace(content, token.id);
  spec_.added.push_back(std::move(token));
}

AddedToken read_token_flags(const Json& json, bool special, std::optional<bool> normalized,
                            std::string_view source) {
  AddedToken token;
  token.content = json_get<std::string>(json, "content", source);
  token.special = json_get_or<bool>(json, "special", special, source);
  token.lstrip = json_get_or<bool>(json, "lstrip", false, source);
  token.rstrip = json_get_or<bool>(json, "rstrip", false, source);
  token.single_word = json_get_or<bool>(json, "single_word", false, source);
  token.normalized =
      json_get_or<bool>(json, "normalized", normalized.value_or(!token.special), source);
  return token;
}

Token checked_token_id(std::int64_t id, std::string_view source) {
  require(id >= 0 && id < static_cast<std::int64_t>(kMaxPieces), source, ": added token with id ",
          id, ", expected 0 to ", kMaxPieces - 1);
  return static_cast<Token>(id);
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

namespace {

using Ids = TextIds<std::string>;

Ids read_vocabulary(const Json& json, std::string_view source, TokenizerSpec& spec) {
  require(json.is_object() && !json.empty() && json.size() <= kMaxPieces, source,
          ": expected an object of 1 to ", kMaxPieces, " pieces");
  Ids ids;
  ids.reserve(json.size());
  for (const auto& [key, value] : json.items()) {
    require(value.is_number_unsigned() && value.get<std::uint64_t>() < kMaxPieces, source,
            ": the id of \"", printable(key), "\" must be a whole number below ", kMaxPieces);
    const auto id = value.get<Token>();
    place_printable(spec, id, key);
    ids.emplace(key, id);
  }
  return ids;
}

}  // namespace

TokenizerSpec read_vocab_merges(std::string_view vocabulary, std::string_view vocabulary_name,
                                std::string_view merges, std::string_view merges_name) {
  TokenizerSpec spec;
  spec.source = vocabulary_name;
  const Ids ids = read_vocabulary(parse_json(vocabulary, vocabulary_name), vocabulary_name, spec);
  if (const auto offset = first_invalid_utf8(merges)) {
    fail(merges_name, ": byte ", *offset, " is not valid UTF-8; download the file again");
  }
  std::size_t line_number = 0;
  const auto id_of = [&](std::string_view piece) {
    const auto found = ids.find(piece);
    if (found == ids.end()) {
      fail(merges_name, ": line ", line_number, " uses \"", printable(piece),
           "\", which is not in ", vocabulary_name);
    }
    return found->second;
  };
  while (!merges.empty()) {
    const std::string_view line = next_line(merges);
    ++line_number;
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      fail(merges_name, ": line ", line_number, " is \"", printable(line),
           "\", expected two pieces with a space between");
    }
    const std::string_view left = line.substr(0, space);
    const std::string_view right = line.substr(space + 1);
    const Token left_id = id_of(left);
    const Token right_id = id_of(right);
    spec.merges.push_back({left_id, right_id, id_of(std::string(left).append(right))});
  }
  return spec;
}

namespace {

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

// The 256 special tokens that follow Llama-3's ranks, as Llama 3.1 to 3.3 name them.
std::vector<std::string> llama3_special() {
  constexpr std::array<std::string_view, 11> kNamed = {"<|begin_of_text|>",
                                                       "<|end_of_text|>",
                                                       "<|reserved_special_token_0|>",
                                                       "<|reserved_special_token_1|>",
                                                       "<|finetune_right_pad_id|>",
                                                       "<|reserved_special_token_2|>",
                                                       "<|start_header_id|>",
                                                       "<|end_header_id|>",
                                                       "<|eom_id|>",
                                                       "<|eot_id|>",
                                                       "<|python_tag|>"};
  std::vector<std::string> tokens(kNamed.begin(), kNamed.end());
  for (int reserved = 3; tokens.size() < 256; ++reserved) {
    tokens.push_back("<|reserved_special_token_" + std::to_string(reserved) + "|>");
  }
  return tokens;
}

std::vector<std::string> qwen_special() { return {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}; }

struct KnownRanks {
  std::size_t ranks;
  std::string_view pretokenizer;
  std::vector<std::string> (*special)();
  int bos;  // index in `special`; -1: none
  int eos;
};
constexpr std::array<KnownRanks, 2> kKnownRanks = {{
    {128000, "llama-3", llama3_special, 0, 1},
    {151643, "qwen2", qwen_special, -1, 0},
}};

void read_lines(std::string_view text, TokenizerSpec& spec) {
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    ++line_number;
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    const auto piece = decode_base64(line.substr(0, space));
    const std::int64_t rank =
        space == std::string_view::npos ? -1 : parse_int(line.substr(space + 1)).value_or(-1);
    const bool good =
        piece && !piece->empty() && rank >= 0 && rank < static_cast<std::int64_t>(kMaxPieces);
    if (!good) {
      fail(spec.source, ": line ", line_number, " is \"", printable(line),
           "\", expected base64, a space and a rank below ", kMaxPieces);
    }
    place_piece(spec, static_cast<Token>(rank), *piece, TokenType::normal);
  }
}

void add_specials(const KnownRanks& known, TokenizerSpec& spec) {
  const auto base = static_cast<Token>(spec.pieces.size());
  Token id = base;
  TokenAdder adder(spec);
  for (const std::string& content : known.special()) {
    AddedToken token;
    token.id = id++;
    token.special = true;
    adder.add(token, content);
  }
  if (known.bos >= 0) spec.bos = base + known.bos;
  if (known.eos >= 0) spec.eos = base + known.eos;
  spec.add_bos = known.bos >= 0;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::size_t padding = 0;
    if (i + 4 == text.size()) padding = text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const int digit = k + padding < 4 ? base64_digit(text[i + k]) : 0;
      if (digit < 0) return std::nullopt;
      bits = bits << 6 | static_cast<std::uint32_t>(digit);
    }
    for (std::size_t k = 0; k + padding < 3; ++k) {
      out += static_cast<char>(bits >> (16 - 8 * k) & 0xff);
    }
  }
  return out;
}

TokenizerSpec read_rank_file(std::string_view text, std::string_view source,
                             std::string_view pretokenizer) {
  TokenizerSpec spec;
  spec.source = source;
  spec.merge_order = MergeOrder::by_id;
  spec.ignore_merges = true;
  read_lines(text, spec);
  require(!spec.pieces.empty(), source, ": no ranks");
  for (const KnownRanks& known : kKnownRanks) {
    if (known.ranks != spec.pieces.size()) continue;
    add_specials(known, spec);
    set_pretokenizer(spec, pretokenizer.empty() ? known.pretokenizer : pretokenizer);
    return spec;
  }
  require(!pretokenizer.empty(), source, ": ", spec.pieces.size(),
          " ranks, expected 128000 (Llama-3) or 151643 (Qwen); name the pre-tokenizer of another "
          "vocabulary with ",
          Setting{"pretokenizer"});
  set_pretokenizer(spec, pretokenizer);
  return spec;
}

}  // namespace leq
