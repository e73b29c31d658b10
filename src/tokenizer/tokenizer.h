// Converts text to token ids and back. Built from a TokenizerSpec, or opened without copying from
// the binary tables of a .leq file (150,000 pieces in under 50 ms).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

// Finds a table by name; nullopt if the file has none.
using BlobFinder = std::function<std::optional<std::span<const std::byte>>(std::string_view name)>;

// The binary tables of a tokenizer, to be written to a file. Throws Error on an inconsistent spec
// (a merge of ids without pieces, a pattern that PCRE2 refuses).
std::vector<NamedBlob> tokenizer_tables(const TokenizerSpec& spec);

struct EncodeOptions {
  bool parse_special = true;  // convert special tokens written in the text to their ids
  bool add_bos = false;       // prepend BOS, if the tokenizer has one
};

// A part of a text in which special tokens are either recognized or plain text.
struct TextPart {
  std::string text;
  bool special = false;
};

class Tokenizer {
 public:
  explicit Tokenizer(const TokenizerSpec& spec);
  // The tables must outlive the tokenizer; they are untrusted and checked here. Throws Error naming
  // `source` and the table.
  Tokenizer(const BlobFinder& tables, std::string_view source);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Encodes any bytes; an invalid UTF-8 byte is a segment of its own. Thread-safe. Throws Error
  // only if a pre-tokenizer's pattern takes more steps than PCRE2 allows.
  std::vector<Token> encode(std::string_view text, const EncodeOptions& options) const;
  // The ids of the concatenated parts, as from encode without a BOS, except that a special token is
  // recognized only if it is entirely within parts that allow it. Merges may cross parts.
  std::vector<Token> encode_parts(std::span<const TextPart> parts) const;
  // The bytes of a sequence, without special tokens unless `with_special`. May be invalid UTF-8 if
  // tokens split a character.
  std::string decode(std::span<const Token> ids, bool with_special) const;
  // The bytes that one token adds to a text; empty for special tokens and ids without a piece.
  std::string token_bytes(Token id) const;

  std::size_t size() const;  // ids are in [0, size)
  TokenType type(Token id) const;
  // The id of a special or added token with this exact text.
  std::optional<Token> special_id(std::string_view content) const;
  Token bos() const;
  Token eos() const;
  bool add_bos() const;
  bool add_eos() const;
  bool strips_leading_space() const;  // decoding removes the space that encoding added
  TokenizerKind kind() const;
  std::string summary() const;  // "byte BPE, 50257 pieces, 1 special, from tokenizer.json"

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Converts generated tokens to text one by one without splitting characters: bytes that may still
// become a UTF-8 character are withheld.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder. `at_text_start`: the first token begins a text, so the
  // space that the tokenizer added there is removed.
  StreamDecoder(const Tokenizer& tokenizer, bool at_text_start);

  // Returns the text that is final after this token; special tokens add nothing.
  std::string push(Token id);
  // Returns the rest; incomplete characters become U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;  // a pointer, so that a decoder is assignable
  std::string held_;
  bool drop_space_;
};

}  // namespace leq
