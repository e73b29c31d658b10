#include "convert/vocab_merges.h"

#include <string>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"

namespace leq {
namespace {

using Ids = std::unordered_map<std::string, Token>;

Ids read_vocabulary(const Json& json, std::string_view source, TokenizerSpec& spec) {
  require(json.is_object() && !json.empty() && json.size() <= kMaxPieces, source,
          ": expected an object of 1 to ", kMaxPieces, " pieces");
  Ids ids;
  ids.reserve(json.size());
  for (const auto& [key, value] : json.items()) {
    require(value.is_number_unsigned() && value.get<std::uint64_t>() < kMaxPieces, source,
            ": the id of \"", printable(key), "\" must be a whole number below ", kMaxPieces);
    const auto id = value.get<Token>();
    place_piece(spec, id, bytes_of_printable(key).value_or(key), TokenType::normal);
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
    fail(merges_name, ": byte ", *offset, " is no UTF-8; get the file again");
  }
  std::size_t line_number = 0;
  const auto id_of = [&](std::string_view piece) {
    const auto found = ids.find(std::string(piece));
    if (found == ids.end()) {
      fail(merges_name, ": line ", line_number, " uses \"", printable(piece),
           "\", which is not in ", vocabulary_name);
    }
    return found->second;
  };
  while (!merges.empty()) {
    const std::size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
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

}  // namespace leq
