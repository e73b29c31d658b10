// A tokenizer as plain data: what every source (tokenizer.json, tokenizer.model, vocab.json +
// merges.txt, rank files) is converted to, and what a .leq file carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
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

// A token that is matched in the text before the model runs (Hugging Face's added_tokens). Its own
// text is pieces[id].
struct AddedToken {
  Token id = kNoToken;
  std::string content;       // what is matched; already normalized where `normalized` is set
  bool special = false;      // control: left out of decoded text
  bool lstrip = false;       // swallows white space at its left
  bool rstrip = false;       // ... at its right
  bool single_word = false;  // only between word boundaries
  bool normalized = false;   // matched in the normalized text
};

// How text is changed before it is split. Each stretch between added tokens is changed by itself.
struct Normalizer {
  enum class Kind : std::uint8_t {
    nfc,
    prepend,          // `content` in front of a stretch that is not empty
    replace,          // each `pattern` (a literal) by `content`
    collapse_spaces,  // no spaces at the ends, one where there were several (sentencepiece)
  };
  Kind kind = Kind::nfc;
  std::string pattern;
  std::string content;
};

// Where a U+2581 is put in front by a metaspace step.
enum class PrependScheme : std::uint8_t { never, first, always };

// How text is cut before merging: each step cuts the pieces of the one before it.
struct PreTokenizer {
  enum class Kind : std::uint8_t {
    split,         // by a regular expression, see `behavior`
    metaspace,     // spaces become U+2581; cut before each if `cut_words`
    prefix_space,  // a space in front of a piece that has none (byte-level add_prefix_space)
  };
  // How the matches of `pattern` split the text; the names are Hugging Face's.
  enum class Behavior : std::uint8_t {
    isolated,
    removed,
    contiguous,  // neighbouring matches stay together
    merged_with_previous,
    merged_with_next,
  };
  Kind kind = Kind::split;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  // matches and the text between them change roles
  bool cut_words = true;
  PrependScheme prepend = PrependScheme::always;
  std::string pattern;
};

// Which neighbours merge first. A rank decides, then the leftmost place.
enum class MergeOrder : std::uint8_t {
  listed,    // TokenizerSpec::merges, the first listed first
  by_id,     // any two whose joined text is a piece; the lowest id first (rank files)
  by_score,  // the same; the highest score first (sentencepiece .model files)
};

struct Merge {
  Token left = kNoToken;
  Token right = kNoToken;
  Token result = kNoToken;
};

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::byte_bpe;
  // pieces[id]: raw bytes for byte_bpe (already mapped back from GPT-2's printable alphabet), UTF-8
  // with U+2581 for the sentencepiece kinds. An id without a piece has type unused.
  std::vector<std::string> pieces;
  std::vector<TokenType> types;  // [pieces]
  std::vector<float> scores;     // [pieces] for unigram and by_score; else empty
  MergeOrder merge_order = MergeOrder::listed;
  std::vector<Merge> merges;
  bool ignore_merges = false;  // a whole pre-token that is a piece is taken as it is
  bool byte_fallback = false;  // unknown characters become <0xNN> tokens
  bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  bool strip_leading_space = false;  // decoding drops the one space that encoding added
  std::vector<AddedToken> added;
  Token unknown = kNoToken;
  Token bos = kNoToken;
  Token eos = kNoToken;
  bool add_bos = false;  // a raw prompt starts with bos
  bool add_eos = false;
  std::string source;  // "tokenizer.json", for reports
};

inline constexpr std::size_t kMaxPieces = 1u << 20;
inline constexpr std::size_t kMaxPieceBytes = 4096;
inline constexpr std::size_t kMaxPatternBytes = 16384;
inline constexpr std::uint64_t kMaxWrittenOut = 20000;  // of a pattern: (ab{3}){10} is 40 long
inline constexpr std::size_t kMaxAddedTokens = 1u << 15;
inline constexpr std::size_t kMaxTextSteps = 64;                // normalizers, pre-tokenizers
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581

// The spec as named binary tables, opaque to src/format, which are used in place from a mapped
// file; and back. Names begin with "tokenizer.".
struct NamedBlob {
  std::string name;
  std::vector<std::byte> bytes;
};

}  // namespace leq
