// What the readers of tokenizer files share: GPT-2's printable alphabet, the known pre-tokenizers,
// and growing a spec by tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

inline constexpr std::uint64_t kMaxTokenizerFileBytes = 256ull << 20;

// GPT-2 writes each byte as a printable character. The bytes of a text of such characters; nullopt
// where it holds another character.
std::optional<std::string> bytes_of_printable(std::string_view text);

inline constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Mistral's (Nemo and later): words by case, digits alone.
inline constexpr std::string_view kTekkenPattern =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// Sets the normalizers and pre-tokenizers that go by a name. Throws Error listing the names.
void set_pretokenizer(TokenizerSpec& spec, std::string_view name);

// Puts a piece at an id, growing the spec; ids between become unused. Throws Error where the id has
// another piece already.
void place_piece(TokenizerSpec& spec, Token id, std::string_view piece, TokenType type);

// Makes `token` an added token with its raw text `content`, unless that text is one already.
void add_token(TokenizerSpec& spec, AddedToken token, std::string_view content);

// The id of a token by its raw text: added tokens first, then pieces.
std::optional<Token> find_token(const TokenizerSpec& spec, std::string_view content);

}  // namespace leq
