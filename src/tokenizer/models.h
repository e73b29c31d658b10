// The three algorithms that convert a pre-token to ids: byte-level BPE, sentencepiece BPE with byte
// fallback, and unigram. Each one reads the opened tables and appends to `out`.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/merge.h"
#include "tokenizer/tables.h"

namespace leq {

// Tables for single bytes and characters, computed once when the tokenizer is opened.
struct Alphabet {
  std::array<std::uint32_t, 256> bytes;           // byte_bpe: the piece of a byte
  std::array<std::uint32_t, 128> ascii;           // sentencepiece: the piece of a character
  std::array<std::uint32_t, 256> fallback_bytes;  // sentencepiece: <0xNN>
  float unknown_score = 0.0f;                     // unigram
};
Alphabet make_alphabet(const TokenizerTables& tables);

// Scratch of one encode call.
struct ModelScratch {
  Merger merger;
  std::vector<std::uint32_t> symbols;
  struct Best {
    float score = 0.0f;
    std::uint32_t begin = kEmptySlot;
    std::uint32_t id = kEmptySlot;
  };
  std::vector<Best> best;  // unigram: the best path to each byte
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

// Appends the token if the whole pre-token is a piece; otherwise returns false.
bool append_whole(const TokenizerTables& tables, std::string_view piece, std::vector<Token>& out);

// Appends a character (or an invalid byte) that is no piece: as <0xNN> tokens of its bytes if the
// tokenizer has them, otherwise as the unknown token; nothing if there is none.
void append_unknown(const Model& model, std::string_view character, std::size_t first,
                    std::vector<Token>& out);

}  // namespace leq
