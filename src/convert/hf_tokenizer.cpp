#include "convert/hf_tokenizer.h"

#include <string>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"
#include "tokenizer/normalize.h"

namespace leq {
namespace {

using Ids = std::unordered_map<std::string_view, Token>;

const Json& member_or_null(const Json& json, const char* key) {
  static const Json null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

void check_model(const Json& model, std::string_view source) {
  require(model.is_object(), source, ": key \"model\" must be an object");
  const auto type = json_get_or<std::string>(model, "type", "BPE", source);
  require(type == "BPE", source, ": model type ", printable(type), " is not supported, only BPE is",
          type == "Unigram" ? "; if the folder has a tokenizer.model, give that file" : "");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    require(json_get_or<std::string>(model, key, "", source).empty(), source, ": model ", key,
            " is not supported");
  }
  require(json_get_or<double>(model, "dropout", 0.0, source) == 0.0, source,
          ": model dropout is not supported");
}

// Maps each piece, as it is spelled in the vocabulary and the merges, to its id.
Ids read_vocabulary(const Json& vocabulary, std::string_view source, TokenizerSpec& spec) {
  require(vocabulary.is_object() && !vocabulary.empty(), source,
          ": model vocab must be a non-empty object");
  require(vocabulary.size() <= kMaxPieces, source, ": model vocab has ", vocabulary.size(),
          " pieces, at most ", kMaxPieces, " are accepted");
  Ids ids;
  ids.reserve(vocabulary.size());
  for (const auto& [piece, value] : vocabulary.items()) {
    require(value.is_number_unsigned() && value.get<std::uint64_t>() < kMaxPieces, source,
            ": model vocab: the id of \"", printable(piece), "\" must be a whole number below ",
            kMaxPieces);
    const auto id = value.get<Token>();
    const bool by_bytes = spec.kind == TokenizerKind::byte_bpe;
    place_piece(spec, id, by_bytes ? bytes_of_printable(piece).value_or(piece) : piece,
                TokenType::normal);
    ids.emplace(piece, id);
  }
  return ids;
}

Token id_of(const Ids& ids, std::string_view piece, std::string_view source, std::size_t merge) {
  const auto found = ids.find(piece);
  require(found != ids.end(), source, ": merge ", merge, " uses \"", printable(piece),
          "\", which is not in the vocab");
  return found->second;
}

// A merge is either "left right" or ["left", "right"].
void read_merges(const Json& merges, const Ids& ids, std::string_view source, TokenizerSpec& spec) {
  require(merges.is_array(), source, ": model merges must be a list");
  spec.merges.reserve(merges.size());
  std::string left;
  std::string right;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    const bool is_pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    require(is_pair || merge.is_string(), source, ": merge ", i,
            " must be a string or a pair of strings");
    if (is_pair) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      const auto& line = merge.text();
      const std::size_t space = line.find(' ');
      require(space != std::string::npos && line.find(' ', space + 1) == std::string::npos, source,
              ": merge ", i, " \"", printable(line), "\" must be two pieces with a space between");
      left = line.substr(0, space);
      right = line.substr(space + 1);
    }
    const Token left_id = id_of(ids, left, source, i);
    const Token right_id = id_of(ids, right, source, i);
    spec.merges.push_back({left_id, right_id, id_of(ids, left + right, source, i)});
  }
}

void mark_byte_pieces(TokenizerSpec& spec) {
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    const std::string_view piece = spec.pieces[id];
    const bool is_byte = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
    if (is_byte && spec.types[id] == TokenType::normal) spec.types[id] = TokenType::byte;
  }
}

void read_added_tokens(const Json& list, std::string_view source, TokenizerSpec& spec) {
  if (list.is_null()) return;
  require(list.is_array(), source, ": added_tokens must be a list");
  for (const Json& entry : list) {
    AddedToken token;
    const auto id = json_get<std::int64_t>(entry, "id", source);
    require(id >= 0 && id < static_cast<std::int64_t>(kMaxPieces), source, ": added token with id ",
            id, ", expected 0 to ", kMaxPieces - 1);
    token.id = static_cast<Token>(id);
    token.special = json_get_or<bool>(entry, "special", false, source);
    token.lstrip = json_get_or<bool>(entry, "lstrip", false, source);
    token.rstrip = json_get_or<bool>(entry, "rstrip", false, source);
    token.single_word = json_get_or<bool>(entry, "single_word", false, source);
    token.normalized = json_get_or<bool>(entry, "normalized", !token.special, source);
    add_token(spec, token, json_get<std::string>(entry, "content", source));
  }
}

}  // namespace

HfTokenizer read_hf_tokenizer(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  require(json.is_object(), source, ": expected a JSON object, found ", json.type_name());
  HfTokenizer out;
  TokenizerSpec& spec = out.spec;
  spec.source = source;
  const Json& model = member_or_null(json, "model");
  check_model(model, source);
  read_normalizer(member_or_null(json, "normalizer"), source, spec);
  check_normalizers(spec.normalizers, source);
  read_pre_tokenizer(member_or_null(json, "pre_tokenizer"), source, spec);
  const Ids ids = read_vocabulary(member_or_null(model, "vocab"), source, spec);
  read_merges(member_or_null(model, "merges"), ids, source, spec);
  spec.ignore_merges = json_get_or<bool>(model, "ignore_merges", false, source);
  spec.fuse_unknown = json_get_or<bool>(model, "fuse_unk", false, source);
  spec.byte_fallback = json_get_or<bool>(model, "byte_fallback", false, source);
  if (spec.byte_fallback && spec.kind != TokenizerKind::byte_bpe) mark_byte_pieces(spec);
  const auto unknown = json_get_or<std::string>(model, "unk_token", "", source);
  if (!unknown.empty()) {
    const auto found = ids.find(unknown);
    require(found != ids.end(), source, ": model unk_token \"", printable(unknown),
            "\" is not in the vocab");
    spec.unknown = found->second;
    spec.types[static_cast<std::size_t>(spec.unknown)] = TokenType::unknown;
  }
  read_decoder(member_or_null(json, "decoder"), source, spec);
  read_added_tokens(member_or_null(json, "added_tokens"), source, spec);
  out.around = read_post_processor(member_or_null(json, "post_processor"), source);
  return out;
}

}  // namespace leq
