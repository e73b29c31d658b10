// A tokenizer as plain data, to which every source (tokenizer.json, tokenizer.model, rank files,
// vocab.json with merges.txt) is converted and which a .leq file contains.
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
  sentencepiece_bpe,  // scores or merges, byte fallback (LLaMA, Mistral)
  unigram,            // pieces with log probabilities, Viterbi
};

enum class TokenType : std::uint8_t {
  normal,
  unknown,
  control,       // special: never printed, recognized in prompts unless disabled
  user_defined,  // added, not special: always recognized, printed
  byte,          // <0xNN>
  unused,        // an id without a piece; never sampled
};

// A token that is matched in the text before the model is applied (Hugging Face's added_tokens).
// Its printed text is pieces[id].
struct AddedToken {
  Token id = kNoToken;
  std::string content;       // the text to match, in normalized form if `normalized`
  bool special = false;      // control: omitted from decoded text
  bool lstrip = false;       // absorbs white space to its left
  bool rstrip = false;       // absorbs white space to its right
  bool single_word = false;  // matched only between word boundaries
  bool normalized = false;   // matched in normalized text
};

// A step that changes text before it is split; applied to each stretch between added tokens.
struct Normalizer {
  enum class Kind : std::uint8_t {
    nfc,
    prepend,          // `content` before a stretch that is not empty
    replace,          // each `pattern` (a literal) with `content`
    collapse_spaces,  // trims spaces and reduces runs to one (sentencepiece)
  };
  Kind kind = Kind::nfc;
  std::string pattern;
  std::string content;
};

// Where a metaspace step prepends a U+2581.
enum class PrependScheme : std::uint8_t { never, first, always };

// A step that splits text before merging; each step splits the pieces of the previous one.
struct PreTokenizer {
  enum class Kind : std::uint8_t {
    split,         // by a regular expression; see `behavior`
    metaspace,     // spaces become U+2581; split before each if `cut_words`
    prefix_space,  // adds a missing leading space (byte-level add_prefix_space)
  };
  // How the matches of `pattern` split the text; named as in Hugging Face.
  enum class Behavior : std::uint8_t {
    isolated,
    removed,
    contiguous,  // adjacent matches are joined
    merged_with_previous,
    merged_with_next,
  };
  Kind kind = Kind::split;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  // swaps matches and the text between them
  bool cut_words = true;
  PrependScheme prepend = PrependScheme::always;
  std::string pattern;
};

// The source of merge ranks. The pair with the lowest rank merges first; on ties, the leftmost.
enum class MergeOrder : std::uint8_t {
  listed,    // TokenizerSpec::merges, in this order
  by_id,     // any two symbols that form a piece; lowest id first (rank files)
  by_score,  // any two symbols that form a piece; highest score first (sentencepiece .model files)
};

struct Merge {
  Token left = kNoToken;
  Token right = kNoToken;
  Token result = kNoToken;
};

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::byte_bpe;
  // pieces[id]: raw bytes for byte_bpe (decoded from GPT-2's printable alphabet), UTF-8 with U+2581
  // for the sentencepiece kinds. An id without a piece has type unused.
  std::vector<std::string> pieces;
  std::vector<TokenType> types;  // [pieces]
  std::vector<float> scores;     // [pieces] for unigram and by_score, otherwise empty
  MergeOrder merge_order = MergeOrder::listed;
  std::vector<Merge> merges;
  bool ignore_merges = false;  // a pre-token that is a piece is not merged
  bool byte_fallback = false;  // unknown characters become <0xNN> tokens
  bool fuse_unknown = false;   // adjacent unknown characters become one unknown token
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  bool strip_leading_space = false;  // decoding removes the space that encoding added
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
inline constexpr std::uint64_t kMaxWrittenOut = 20000;  // length of a pattern; (ab{3}){10} has 40
inline constexpr std::size_t kMaxAddedTokens = 1u << 15;
inline constexpr std::size_t kMaxTextSteps = 64;                // steps per list
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581

// Converts the spec to named binary tables, which src/format treats as opaque blobs and which are
// used directly from a mapped file; and back. Names begin with "tokenizer.".
struct NamedBlob {
  std::string name;
  std::vector<std::byte> bytes;
};

}  // namespace leq
