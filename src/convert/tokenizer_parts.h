// Shared parts of the readers of tokenizer files: GPT-2's printable alphabet, the known
// pre-tokenizers, and functions that add tokens to a spec.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "tokenizer/spec.h"

namespace leq {

inline constexpr std::uint64_t kMaxTokenizerFileBytes = 256ull << 20;

// Decodes GPT-2's alphabet, in which each byte is a printable character; nullopt if the text
// contains another character.
std::optional<std::string> bytes_of_printable(std::string_view text);

inline constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Mistral's pattern (Nemo and later): splits words by case, and single digits.
inline constexpr std::string_view kTekkenPattern =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// The known names: "gpt-2".
std::vector<std::string> pretokenizer_names();
// Sets the normalizers and pre-tokenizers with a known name. Throws Error listing the names.
void set_pretokenizer(TokenizerSpec& spec, std::string_view name);

// Sets the piece of an id, growing the spec; ids in between are unused. Throws Error if the id
// already has another piece.
void place_piece(TokenizerSpec& spec, Token id, std::string_view piece, TokenType type);

// Sets the piece of an id to a text in GPT-2's alphabet. A text with another character is printed
// as it is, but no text is encoded as it, as in tokenizers.
void place_printable(TokenizerSpec& spec, Token id, std::string_view text);

// Ids by text. The hash has a random seed, so that no file can choose texts that collide.
struct SeededHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const;
};
template <class Text>
using TextIds = std::unordered_map<Text, Token, SeededHash, std::equal_to<>>;

// Finds and adds tokens by their raw text.
class TokenAdder {
 public:
  explicit TokenAdder(TokenizerSpec& spec);
  // Added tokens are searched first, then pieces.
  std::optional<Token> find(std::string_view content);
  // Adds `token` as an added token with the text `content`, unless there is one with that text.
  void add(AddedToken token, std::string_view content);

 private:
  TokenizerSpec& spec_;
  TextIds<std::string> added_;
  TextIds<std::string> pieces_;  // empty until a search needs it
};

// An added token as tokenizer files describe it: {"content": .., "special": .., "lstrip": .., ...}.
// `special` is the default of that key; `normalized`'s default is `normalized`, or the opposite of
// special if that is nullopt. The id is not set.
AddedToken read_token_flags(const Json& json, bool special, std::optional<bool> normalized,
                            std::string_view source);
// Throws Error naming `source` if an added token cannot have this id.
Token checked_token_id(std::int64_t id, std::string_view source);

// Removes the first line from `text` and returns it, without its line end.
std::string_view next_line(std::string_view& text);

// Reads GPT-2's two tokenizer files: a vocabulary (vocab.json, encoder.json) and its merges
// (merges.txt, vocab.bpe).

// Takes the contents of the two files and their names for errors. The spec has no text rules yet.
// Throws Error naming the file and the line.
TokenizerSpec read_vocab_merges(std::string_view vocabulary, std::string_view vocabulary_name,
                                std::string_view merges, std::string_view merges_name);

// Reads a tiktoken rank file, whose lines are a base64 piece and its rank, which is both its id and
// its merge priority (Llama-3's tokenizer.model, qwen.tiktoken).

// The spec with the special tokens and text rules of a known vocabulary (128,000 ranks: Llama-3;
// 151,643: Qwen), or with the named pre-tokenizer. Throws Error naming the line, or the number of
// ranks if the vocabulary is unknown and `pretokenizer` is empty.
TokenizerSpec read_rank_file(std::string_view text, std::string_view source,
                             std::string_view pretokenizer);

// Decodes strict base64 with padding; nullopt for any other text.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace leq
