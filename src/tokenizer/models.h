// The three ways to turn a pre-token into ids: byte-level BPE, sentencepiece BPE with byte
// fallback, and unigram. Each reads the opened tables and appends to `out`.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/merge.h"
#include "tokenizer/tables.h"

namespace leq {

// Tables of single bytes and characters, computed once when the tokenizer opens.
struct Alphabet {
  std::array<std::uint32_t, 256> bytes;           // byte_bpe: the piece of a byte
  std::array<std::uint32_t, 128> ascii;           // sentencepiece: the piece of a character
  std::array<std::uint32_t, 256> fallback_bytes;  // sentencepiece: <0xNN>
  float unknown_score = 0.0f;                     // unigram
};
Alphabet make_alphabet(const TokenizerTables& tables);

// The scratch of one encode call.
struct ModelScratch {
  Merger merger;
  std::vector<std::uint32_t> symbols;
  struct Best {
    float score = 0.0f;
    std::uint32_t begin = kEmptySlot;
    std::uint32_t id = kEmptySlot;
  };
  std::vector<Best> best;  // unigram: the best way to each byte
};

struct Model {
  const TokenizerTables& tables;
  const Alphabet& alphabet;
};

using EncodePiece = void (*)(const Model& model, std::string_view piece, ModelScratch& scratch,
                             std::vector<Token>& out);
void encode_byte_bpe(const Model& model, std::string_view piece, ModelScratch& scratch,
                     std::vector<Token>& out);
void encode_sentencepiece_bpe(const Model& model, std::string_view piece, ModelScratch& scratch,
                              std::vector<Token>& out);
void encode_unigram(const Model& model, std::string_view piece, ModelScratch& scratch,
                    std::vector<Token>& out);

// The token of a pre-token that is a piece as a whole; false where none is.
bool append_whole(const TokenizerTables& tables, std::string_view piece, std::vector<Token>& out);

// A character (or an invalid byte) that is no piece: its bytes as <0xNN> tokens where the tokenizer
// has them, else the unknown token, else nothing.
void append_unknown(const Model& model, std::string_view character, std::size_t first,
                    std::vector<Token>& out);

}  // namespace leq
