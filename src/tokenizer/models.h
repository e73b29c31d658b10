// The models that encode one piece of a text: byte-level BPE, BPE of SentencePiece, and unigram.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/tables.h"

namespace leq {

// Byte pair merging: of all adjacent symbols that have a merge, the pair with the lowest rank
// (among equal ranks the leftmost) is merged, until there is none left.
class Merger {
 public:
  // Merges `symbols` in place. A symbol kEmptySlot is never merged. Short inputs are searched
  // linearly, long ones with a heap, so that the time is O(n log n).
  void merge(const MergeTable& table, std::vector<std::uint32_t>& symbols);

 private:
  void merge_long(const MergeTable& table, std::vector<std::uint32_t>& symbols);
  std::uint32_t rank_at(const MergeTable& table, const std::vector<std::uint32_t>& symbols,
                        std::uint32_t at, std::uint32_t& result) const;

  // A heap of ranks and positions of pairs, lowest first. The symbols are looked up again, so that
  // a long word takes only 8 bytes per pair.
  std::vector<std::uint64_t> heap_;
  std::vector<std::uint32_t> next_;      // [symbols] the next remaining symbol
  std::vector<std::uint32_t> previous_;  // [symbols] the previous one
};

// The three algorithms that convert a pre-token to ids: byte-level BPE, sentencepiece BPE with byte
// fallback, and unigram. Each one reads the opened tables and appends to `out`.

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
