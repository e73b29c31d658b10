// Sentencepiece BPE: every character is a symbol, and pairs are merged by rank or score; a
// character without a piece falls back to its bytes.
#include <algorithm>

#include "base/text.h"
#include "tokenizer/models.h"

namespace leq {
namespace {

std::uint32_t character_symbol(const Model& model, std::string_view character) {
  if (character.size() == 1) {
    const auto byte = static_cast<unsigned char>(character[0]);
    return byte < 128 ? model.alphabet.ascii[byte] : kEmptySlot;
  }
  return model.tables.pieces.find(character);
}

void encode_word(const Model& model, std::string_view word, ModelScratch& scratch,
                 std::vector<Token>& out) {
  // Characters without a symbol split the word, because no merge can cross them.
  auto& symbols = scratch.symbols;
  symbols.clear();
  const std::size_t first = out.size();
  const auto flush = [&] {
    scratch.merger.merge(model.tables.merges, symbols);
    for (const std::uint32_t id : symbols) {
      if (id < model.tables.size())
        out.push_back(static_cast<Token>(id));
      else
        append_unknown(model, model.tables.pieces.text(id), first, out);
    }
    symbols.clear();
  };
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(word.substr(i)), 1);
    const std::string_view character = word.substr(i, length);
    const std::uint32_t symbol = character_symbol(model, character);
    if (symbol != kEmptySlot) {
      symbols.push_back(symbol);
    } else {
      flush();
      append_unknown(model, character, first, out);
    }
    i += length;
  }
  flush();
}

}  // namespace

bool append_whole(const TokenizerTables& tables, std::string_view piece, std::vector<Token>& out) {
  if (piece.size() > tables.longest_piece_bytes) return false;
  const std::uint32_t whole = tables.pieces.find(piece);
  if (whole >= tables.size()) return false;
  out.push_back(static_cast<Token>(whole));
  return true;
}

void append_unknown(const Model& model, std::string_view character, std::size_t first,
                    std::vector<Token>& out) {
  const TokenizerSpec& rules = model.tables.rules;
  const auto& bytes = model.alphabet.fallback_bytes;
  const auto token_of = [&](char byte) { return bytes[static_cast<unsigned char>(byte)]; };
  const bool all =
      rules.byte_fallback && std::all_of(character.begin(), character.end(),
                                         [&](char c) { return token_of(c) != kEmptySlot; });
  if (all) {
    for (const char byte : character) out.push_back(static_cast<Token>(token_of(byte)));
  } else if (rules.unknown != kNoToken) {
    const bool fused = rules.fuse_unknown && out.size() > first && out.back() == rules.unknown;
    if (!fused) out.push_back(rules.unknown);
  }
}

void encode_sentencepiece_bpe(const Model& model, std::string_view piece, ModelScratch& scratch,
                              std::vector<Token>& out) {
  const TokenizerTables& tables = model.tables;
  if (tables.rules.ignore_merges && append_whole(tables, piece, out)) return;
  encode_word(model, piece, scratch, out);
}

}  // namespace leq
