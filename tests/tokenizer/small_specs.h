// Small handmade tokenizers for tests, which need no data files.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "tokenizer/spec.h"

namespace leq::test {

inline void add_piece(TokenizerSpec& spec, std::string piece, TokenType type, float score = 0.0f) {
  spec.pieces.push_back(std::move(piece));
  spec.types.push_back(type);
  spec.scores.push_back(score);
}

inline void add_special(TokenizerSpec& spec, const std::string& content) {
  AddedToken token;
  token.id = static_cast<Token>(spec.pieces.size());
  token.content = content;
  token.special = true;
  spec.added.push_back(token);
  add_piece(spec, content, TokenType::control);
}

inline std::string byte_piece(int byte) {
  std::array<char, 8> text = {};
  std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
  return text.data();
}

// A tokenizer of all bytes with a few merges, one special token, and a split into words.
inline TokenizerSpec small_byte_spec() {
  TokenizerSpec spec;
  spec.source = "small bytes";
  for (int byte = 0; byte < 256; ++byte) {
    add_piece(spec, std::string(1, static_cast<char>(byte)), TokenType::normal);
  }
  const auto merge = [&](const std::string& left, const std::string& right) {
    const auto find = [&](const std::string& piece) {
      for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
        if (spec.pieces[id] == piece) return static_cast<Token>(id);
      }
      return kNoToken;
    };
    spec.merges.push_back({find(left), find(right), static_cast<Token>(spec.pieces.size())});
    add_piece(spec, left + right, TokenType::normal);
  };
  merge("h", "e");
  merge("l", "l");
  merge("he", "ll");
  merge("hell", "o");
  merge(" ", "hello");
  merge("\xc3", "\xa9");
  spec.scores.clear();
  add_special(spec, "<end>");
  spec.scores.clear();
  spec.eos = spec.added[0].id;
  PreTokenizer step;
  step.pattern = " ?\\p{L}+|\\s+|[^\\s\\p{L}]+";
  spec.pre_tokenizers = {step};
  return spec;
}

// A tokenizer of bytes, characters and words with scores; words begin with U+2581.
inline TokenizerSpec small_sentencepiece_spec(TokenizerKind kind) {
  TokenizerSpec spec;
  spec.source = "small sentencepiece";
  spec.kind = kind;
  spec.merge_order = MergeOrder::by_score;
  add_piece(spec, "<unk>", TokenType::unknown);
  spec.unknown = 0;
  add_special(spec, "<s>");
  spec.bos = 1;
  spec.add_bos = true;
  for (int byte = 0; byte < 256; ++byte) add_piece(spec, byte_piece(byte), TokenType::byte);
  const std::string mark(kSpaceMark);
  float score = -1.0f;
  for (const std::string& piece :
       {mark + "t", std::string("he"), mark + "the", mark + "a", std::string("in"), mark,
        std::string("t"), std::string("h"), std::string("e"), std::string("a"), std::string("i"),
        std::string("n"), std::string("\xc3\xa9")}) {
    add_piece(spec, piece, TokenType::normal, score);
    score -= 1.0f;
  }
  spec.byte_fallback = true;
  spec.fuse_unknown = true;
  spec.strip_leading_space = true;
  spec.normalizers = {{Normalizer::Kind::prepend, "", mark},
                      {Normalizer::Kind::replace, " ", mark}};
  return spec;
}

inline std::vector<TokenizerSpec> small_specs() {
  return {small_byte_spec(), small_sentencepiece_spec(TokenizerKind::sentencepiece_bpe),
          small_sentencepiece_spec(TokenizerKind::unigram)};
}

}  // namespace leq::test
