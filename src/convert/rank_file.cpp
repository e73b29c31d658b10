#include "convert/rank_file.h"

#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"

namespace leq {
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
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
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
  for (const std::string& content : known.special()) {
    AddedToken token;
    token.id = id++;
    token.special = true;
    add_token(spec, token, content);
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
