// A tokenizer as plain data: what every source (tokenizer.json, tokenizer.model, vocab.json +
// merges.txt, rank files) is converted to, and what a .leq file carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace leq {

using Token = std::int32_t;
inline constexpr Token kNoToken = -1;

enum class TokenizerKind : std::uint8_t {
  byte_bpe,           // pieces are byte strings; merges by rank (GPT-2, Llama-3, Qwen)
  sentencepiece_bpe,  // pieces with scores or merges, byte fallback (LLaMA, Mistral)
  unigram,            // pieces with log probabilities, Viterbi
};

enum class TokenType : std::uint8_t {
  normal,
  unknown,
  control,       // special: never printed, recognised in prompts unless told not to
  user_defined,  // added, not special: always recognised, printed
  byte,          // <0xNN>
  unused,        // an id without a piece; never sampled
};

// A token that is matched in the text before the model runs (Hugging Face's added_tokens).
struct AddedToken {
  Token id = kNoToken;
  std::string content;
  bool special = false;      // control: left out of decoded text
  bool lstrip = false;       // swallows white space at its left
  bool rstrip = false;       // ... at its right
  bool single_word = false;  // only between word boundaries
  bool normalized = false;   // matched in the normalized text
};

// Metaspace: how sentencepiece-like tokenizers mark spaces with U+2581.
enum class PrependScheme : std::uint8_t { never, first, always };

// How text is changed before it is split.
struct Normalizer {
  enum class Kind : std::uint8_t { nfc, prepend, replace };
  Kind kind = Kind::nfc;
  std::string pattern;  // replace: a literal
  std::string content;  // prepend, replace
};

// How text is cut before merging: each pattern cuts the pieces of the one before it.
struct PreTokenizer {
  enum class Kind : std::uint8_t {
    regex_isolated,  // matches and the text between them are pieces of their own (Split isolated)
    regex_removed,   // only the text between matches stays
    digits,          // each digit by itself, or runs of them (see `individual`)
    metaspace,       // spaces become U+2581, split before each (see `split`)
  };
  Kind kind = Kind::regex_isolated;
  std::string pattern;
  bool invert = false;       // regex: matches and gaps change roles
  bool individual = false;   // digits
  bool split = true;         // metaspace
  PrependScheme prepend = PrependScheme::always;  // metaspace
};

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::byte_bpe;
  // pieces[id]: raw bytes for byte_bpe (already mapped back from GPT-2's printable alphabet), UTF-8
  // with U+2581 for the sentencepiece kinds. An id without a piece has type unused.
  std::vector<std::string> pieces;
  std::vector<TokenType> types;    // [pieces]
  std::vector<float> scores;       // [pieces] for sentencepiece .model files; else empty
  // Merges in rank order as pairs of ids and the id of the result; empty where the rank of a merge
  // is the id of its result (rank files) or the score decides (sentencepiece .model files).
  struct Merge { Token left, right, result; };
  std::vector<Merge> merges;
  bool merge_by_rank_of_result = false;  // rank files: the lowest resulting id merges first
  bool ignore_merges = false;            // a whole pre-token that is a piece is taken as it is
  bool byte_fallback = false;            // unknown characters become <0xNN> tokens
  bool fuse_unknown = false;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  bool add_prefix_space = false;       // byte-level: a space in front of the text
  bool add_dummy_prefix = false;       // sentencepiece: U+2581 in front of the text
  bool remove_extra_spaces = false;    // sentencepiece
  bool strip_leading_space = false;    // decoding drops the one space that encoding added
  std::vector<AddedToken> added;
  Token unknown = kNoToken;
  Token bos = kNoToken;
  Token eos = kNoToken;
  bool add_bos = false;  // a raw prompt starts with bos
  bool add_eos = false;
  std::string source;  // "tokenizer.json", for reports
};

// The spec as named binary tables that are used in place from a mapped file (the format room stores
// them; it does not know what they mean), and back. Names begin with "tokenizer.".
struct NamedBlob {
  std::string name;
  std::vector<std::byte> bytes;
};

}  // namespace leq
