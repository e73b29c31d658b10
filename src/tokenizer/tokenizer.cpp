// Encoding and decoding: added tokens are found first, the text between them is normalized, split
// and encoded by the model, and the tokens of frequent words are cached.
#include "tokenizer/tokenizer.h"

#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

#include "base/text.h"
#include "tokenizer/models.h"
#include "tokenizer/pretokenize.h"

namespace leq {

// The parts of a text in which special tokens are recognized; elsewhere their texts are plain text.
class SpecialScope {
 public:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  static SpecialScope everywhere() { return SpecialScope({}, true); }
  static SpecialScope nowhere() { return SpecialScope({}, false); }
  // `ranges` must be ascending, must not touch, and must outlive the scope.
  static SpecialScope within(std::span<const Range> ranges) { return SpecialScope(ranges, false); }

  // Whether [begin, end) of the text is within one range.
  bool allows(std::size_t begin, std::size_t end) const {
    if (everywhere_) return true;
    const auto range = first_ending_after(begin);
    return range != ranges_.end() && range->begin <= begin && end <= range->end;
  }
  bool in_ranges() const { return !ranges_.empty(); }
  // The first border of a range after `at`, but at most `limit`.
  std::size_t next_border(std::size_t at, std::size_t limit) const {
    const auto range = first_ending_after(at);
    if (range == ranges_.end()) return limit;
    return std::min(range->begin > at ? range->begin : range->end, limit);
  }

 private:
  SpecialScope(std::span<const Range> ranges, bool everywhere)
      : ranges_(ranges), everywhere_(everywhere) {}

  std::span<const Range>::iterator first_ending_after(std::size_t at) const {
    return std::upper_bound(ranges_.begin(), ranges_.end(), at,
                            [](std::size_t offset, const Range& r) { return offset < r.end; });
  }

  std::span<const Range> ranges_;
  bool everywhere_;
};

// Finds added tokens in a text, leftmost first, then longest, as in Hugging Face's tokenizers.
class AddedTokenMatcher {
 public:
  // `normalized`: match the tokens of normalized text, otherwise those of raw text.
  AddedTokenMatcher(std::span<const AddedToken> tokens, bool normalized);

  bool has_special() const;

  // Splits `text` into pieces: text between tokens (id kNoToken, never empty) and tokens. Outside
  // of `scope`, special tokens are plain text.
  template <class Sink>
  void cut(std::string_view text, const SpecialScope& scope, Sink&& sink) const {
    Cut next{text};
    while (find_next(next, scope)) {
      if (next.begin > next.done) sink(text.substr(next.done, next.begin - next.done), kNoToken);
      sink(text.substr(next.begin, next.end - next.begin), next.id);
      next.done = next.end;
    }
    if (next.done < text.size()) sink(text.substr(next.done), kNoToken);
  }

 private:
  // A node of a trie; its children form a linked list.
  struct Node {
    std::uint32_t child = 0;    // 0: none
    std::uint32_t sibling = 0;  // 0: none
    std::uint32_t token = kNone;
    char byte = 0;
  };
  struct Cut {
    std::string_view text;
    std::size_t done = 0;   // end of the token before
    std::size_t begin = 0;  // offset of the token found
    std::size_t end = 0;
    Token id = kNoToken;
    std::size_t search = 0;  // offset at which the search continues
    std::size_t spaces = 0;  // end of the white space that a token before absorbed
  };
  static constexpr std::uint32_t kNone = 0xffffffffu;

  void add(const AddedToken& token, std::uint32_t index);
  std::uint32_t child(std::uint32_t node, char byte) const;
  bool find_next(Cut& next, const SpecialScope& scope) const;
  bool accept(const AddedToken& token, Cut& next, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> first_;  // [256] children of the root
};

namespace {

// The regular expression class \w, by which word boundaries are defined: letters, marks, digits,
// letter numbers and connectors.
bool is_word(char32_t c) {
  if (c == 0x200c || c == 0x200d) return true;  // joiners
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

bool is_space(char32_t c) {
  if ((c >= 0x09 && c <= 0x0d) || c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

// The well-formed character at the end of `text`; empty if there is none.
std::string_view last_character(std::string_view text) {
  for (std::size_t size = 1; size <= 4 && size <= text.size(); ++size) {
    const std::string_view tail = text.substr(text.size() - size);
    if (utf8_length(tail) == size) return tail;
  }
  return {};
}

bool touches_word(std::string_view character) {
  return !character.empty() && is_word(decode_utf8(character));
}

bool touches_space(std::string_view character) {
  return !character.empty() && is_space(decode_utf8(character));
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::span<const AddedToken> tokens, bool normalized)
    : nodes_(1), first_(256, 0) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    add(token, static_cast<std::uint32_t>(tokens_.size()));
    tokens_.push_back(token);
  }
}

bool AddedTokenMatcher::has_special() const {
  return std::any_of(tokens_.begin(), tokens_.end(), [](const AddedToken& t) { return t.special; });
}

std::uint32_t AddedTokenMatcher::child(std::uint32_t node, char byte) const {
  if (node == 0) return first_[static_cast<unsigned char>(byte)];
  std::uint32_t at = nodes_[node].child;
  while (at != 0 && nodes_[at].byte != byte) at = nodes_[at].sibling;
  return at;
}

void AddedTokenMatcher::add(const AddedToken& token, std::uint32_t index) {
  std::uint32_t node = 0;
  for (const char byte : token.content) {
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({0, nodes_[node].child, kNone, byte});
      nodes_[node].child = next;
      if (node == 0) first_[static_cast<unsigned char>(byte)] = next;
    }
    node = next;
  }
  if (nodes_[node].token == kNone) nodes_[node].token = index;
}

// Extends the token by the white space it absorbs; false if it must be a single word but is not, or
// if the token before absorbed it.
bool AddedTokenMatcher::accept(const AddedToken& token, Cut& next, std::size_t at) const {
  next.begin = at;
  next.end = at + token.content.size();
  next.id = token.id;
  const auto before = [&] { return last_character(next.text.substr(0, next.begin)); };
  const auto after = [&] {
    const std::string_view rest = next.text.substr(next.end);
    return rest.substr(0, utf8_length(rest));
  };
  if (token.single_word && (touches_word(before()) || touches_word(after()))) return false;
  if (token.lstrip) {
    while (next.begin > next.done && touches_space(before())) next.begin -= before().size();
    if (next.end <= next.done) return false;
  }
  if (token.rstrip) {
    next.end = std::max(next.end, next.spaces);  // so that a run of spaces is read once
    while (touches_space(after())) next.end += after().size();
    next.spaces = next.end;
  }
  return true;
}

bool AddedTokenMatcher::find_next(Cut& next, const SpecialScope& scope) const {
  if (tokens_.empty()) return false;
  const std::string_view text = next.text;
  // A token within the white space that the one before absorbed is found, too, as in tokenizers.
  for (std::size_t at = next.search; at < text.size(); ++at) {
    std::uint32_t node = first_[static_cast<unsigned char>(text[at])];
    if (node == 0) continue;
    std::uint32_t longest = kNone;
    for (std::size_t end = at + 1; node != 0; ++end) {
      if (nodes_[node].token != kNone) longest = nodes_[node].token;
      if (end == text.size()) break;
      node = child(node, text[end]);
    }
    if (longest == kNone) continue;
    const AddedToken& token = tokens_[longest];
    next.search = at + token.content.size();
    const bool allowed = !token.special || scope.allows(at, next.search);
    if (allowed && accept(token, next, at)) return true;
    // A token that crosses the border of a range must not hide a token that begins within it.
    if (!allowed && scope.in_ranges()) next.search = at + 1;
    at = next.search - 1;
  }
  return false;
}

// Caches the ids of short words within one encode call, as offsets into its output.
class WordCache {
 public:
  // For shorter texts the cache does not pay off.
  static constexpr std::size_t kMinTextBytes = 4096;

  explicit WordCache(std::size_t text_bytes)
      : entries_(text_bytes < kMinTextBytes ? 0 : std::size_t{1} << kBits) {}

  // A word as two numbers; the last byte is its length.
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    std::uint32_t begin = 0;  // offset in the output
    std::uint32_t count = 0;
  };

  bool takes(std::string_view word) const { return !entries_.empty() && word.size() < 16; }

  static Key key_of(std::string_view word) {
    char bytes[16] = {};
    std::memcpy(bytes, word.data(), word.size());
    bytes[15] = static_cast<char>(word.size());
    Key key;
    std::memcpy(&key.low, bytes, 8);
    std::memcpy(&key.high, bytes + 8, 8);
    return key;
  }

  // The only slot for a key; its entry may belong to another word.
  Entry& place(const Key& key) {
    const std::uint64_t mixed =
        (key.low ^ key.high * 0xd6e8feb86659fd93ull) * 0x9e3779b97f4a7c15ull;
    return entries_[static_cast<std::size_t>(mixed >> (64 - kBits))];
  }

 private:
  static constexpr int kBits = 13;
  std::vector<Entry> entries_;
};

namespace {

constexpr std::array<EncodePiece, 3> kEncoders = {encode_byte_bpe, encode_sentencepiece_bpe,
                                                  encode_unigram};
constexpr std::array<std::string_view, 3> kKindNames = {"byte BPE", "sentencepiece BPE", "unigram"};

// The byte NN of "<0xNN>", or -1.
int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const auto digit = std::string_view("0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) return -1;
    value = value * 16 + static_cast<int>(digit);
  }
  return value;
}

}  // namespace

Alphabet make_alphabet(const TokenizerTables& tables) {
  Alphabet alphabet;
  alphabet.fallback_bytes.fill(kEmptySlot);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    alphabet.bytes[byte] = tables.pieces.find({&c, 1});
    if (byte < 128) alphabet.ascii[byte] = alphabet.bytes[byte];
  }
  float lowest = 0.0f;
  for (std::size_t id = 0; id < tables.size(); ++id) {
    if (tables.types[id] == TokenType::byte) {
      const int byte = byte_of_piece(tables.pieces.text(id));
      if (byte >= 0) {
        alphabet.fallback_bytes[static_cast<std::size_t>(byte)] = static_cast<std::uint32_t>(id);
      }
    } else if (tables.types[id] == TokenType::normal && !tables.scores.empty()) {
      lowest = std::min(lowest, tables.scores[id]);
    }
  }
  alphabet.unknown_score = lowest - 10.0f;  // sentencepiece's penalty
  return alphabet;
}

struct Tokenizer::State {
  std::string source;            // for errors
  std::vector<NamedBlob> owned;  // the tables of a tokenizer created from a spec
  TokenizerTables tables;
  Alphabet alphabet;
  AddedTokenMatcher raw_added;
  AddedTokenMatcher normalized_added;
  PreTokenizerChain chain;
  std::map<std::string, Token, std::less<>> special_ids;

  State(TokenizerTables opened, std::string_view file)
      : source(file),
        tables(std::move(opened)),
        alphabet(make_alphabet(tables)),
        raw_added(tables.rules.added, false),
        normalized_added(tables.rules.added, true),
        chain(tables.rules.pre_tokenizers, source) {
    for (const AddedToken& token : tables.rules.added) {
      special_ids.emplace(tables.pieces.text(static_cast<std::size_t>(token.id)), token.id);
    }
  }

  // Appends the printed text of a piece.
  void append_text(Token id, std::string& out) const {
    const auto index = static_cast<std::size_t>(id);
    const std::string_view piece = tables.pieces.text(index);
    if (tables.rules.kind == TokenizerKind::byte_bpe) {
      out += piece;
      return;
    }
    const int byte = tables.types[index] == TokenType::byte ? byte_of_piece(piece) : -1;
    if (byte >= 0)
      out += static_cast<char>(byte);
    else
      out += replace_all(piece, kSpaceMark, " ");
  }
};

namespace {

// One encode call: applies added tokens, normalizers, pre-tokenizers and the model to a text.
template <class State>
class EncodeRun {
 public:
  EncodeRun(const State& state, std::string_view text, const SpecialScope& scope, bool add_bos)
      : state_(state),
        model_{state.tables, state.alphabet},
        text_(text),
        scope_(scope),
        room_(longest_normalized(text.size())),
        cache_(text.size()),
        encode_(kEncoders[static_cast<std::size_t>(state.tables.rules.kind)]) {
    out_.reserve(text.size() / 3 + 8);
    const Token bos = state.tables.rules.bos;
    if (add_bos && bos != kNoToken) out_.push_back(bos);
  }

  std::vector<Token> run() {
    const auto sink = [&](std::string_view piece, Token token) {
      if (token != kNoToken)
        out_.push_back(token);
      else
        segment(piece);
    };
    state_.raw_added.cut(text_, scope_, sink);
    return std::move(out_);
  }

 private:
  // Encodes text between added tokens: well-formed stretches, and invalid bytes one by one.
  void segment(std::string_view text) {
    const std::size_t start = offset_of(text);
    for (std::size_t done = 0; done < text.size();) {
      const std::string_view rest = text.substr(done);
      const std::size_t good = first_invalid_utf8(rest).value_or(rest.size());
      if (good > 0) encode_segments(rest.substr(0, good), {done == 0, start + done == 0});
      if (good < rest.size()) invalid_byte(rest.substr(good, 1));
      done += std::min(good + 1, rest.size());
    }
  }

  void invalid_byte(std::string_view byte) {
    if (state_.tables.rules.kind == TokenizerKind::byte_bpe) {
      encode_byte_bpe(model_, byte, scratch_, out_);
    } else {
      append_unknown(model_, byte, out_.size(), out_);
    }
  }

  // If special tokens are matched in normalized text, whose offsets differ, a stretch also ends at
  // each border of the scope.
  void encode_segments(std::string_view text, PreTokenizerChain::Flags flags) {
    if (!scope_.in_ranges() || !state_.normalized_added.has_special())
      return encode_segment(text, flags);
    for (const std::size_t start = offset_of(text); !text.empty();) {
      const std::size_t at = offset_of(text);
      const std::size_t size = scope_.next_border(at, at + text.size()) - at;
      encode_segment(text.substr(0, size),
                     {flags.begins_segment && at == start, flags.at_text_start && at == start});
      text.remove_prefix(size);
    }
  }

  std::size_t offset_of(std::string_view part) const {
    return static_cast<std::size_t>(part.data() - text_.data());
  }

  void encode_segment(std::string_view text, PreTokenizerChain::Flags flags) {
    const std::string_view normal = normalize(
        state_.tables.rules.normalizers, text,
        {.prepend = flags.begins_segment, .max_bytes = room_, .source = state_.source}, buffer_);
    room_ -= normal.size();
    const auto sink = [&](std::string_view piece, Token token) {
      if (token != kNoToken)
        out_.push_back(token);
      else
        state_.chain.cut(piece, flags, matcher_, pre_token_);
      flags.at_text_start = false;
    };
    const bool special = scope_.allows(offset_of(text), offset_of(text) + text.size());
    state_.normalized_added.cut(
        normal, special ? SpecialScope::everywhere() : SpecialScope::nowhere(), sink);
  }

  void word(std::string_view text) {
    if (!cache_.takes(text)) return encode_(model_, text, scratch_, out_);
    const auto key = WordCache::key_of(text);
    auto& entry = cache_.place(key);
    const std::size_t before = out_.size();
    if (entry.key == key) {
      out_.resize(before + entry.count);
      std::copy_n(out_.data() + entry.begin, entry.count, out_.data() + before);
      return;
    }
    encode_(model_, text, scratch_, out_);
    entry = {key, static_cast<std::uint32_t>(before),
             static_cast<std::uint32_t>(out_.size() - before)};
  }

  const State& state_;
  Model model_;
  std::string_view text_;
  SpecialScope scope_;
  std::size_t room_;  // bytes left for all further stretches after normalization
  WordCache cache_;
  EncodePiece encode_;
  ModelScratch scratch_;
  PatternMatcher matcher_;
  std::string buffer_;
  std::vector<Token> out_;
  PreTokenizerChain::Sink pre_token_ = [this](std::string_view piece) {
    if (!state_.tables.cut_at_words) return word(piece);
    cut_words(piece, [&](std::string_view part) { word(part); });
  };
};

}  // namespace

Tokenizer::Tokenizer(const TokenizerSpec& spec) {
  auto owned = tokenizer_tables(spec);
  const auto find = [&](std::string_view name) -> std::optional<std::span<const std::byte>> {
    for (const NamedBlob& blob : owned) {
      if (blob.name == name) return std::span<const std::byte>(blob.bytes);
    }
    return std::nullopt;
  };
  state_ = std::make_unique<State>(open_tokenizer_tables(find, spec.source), spec.source);
  state_->owned = std::move(owned);
}

Tokenizer::Tokenizer(const BlobFinder& tables, std::string_view source)
    : state_(std::make_unique<State>(open_tokenizer_tables(tables, source), source)) {}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<Token> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const SpecialScope scope =
      options.parse_special ? SpecialScope::everywhere() : SpecialScope::nowhere();
  return EncodeRun<State>(*state_, text, scope, options.add_bos).run();
}

std::vector<Token> Tokenizer::encode_parts(std::span<const TextPart> parts) const {
  std::string text;
  std::vector<SpecialScope::Range> ranges;
  for (const TextPart& part : parts) {
    const std::size_t begin = text.size();
    text += part.text;
    if (!part.special || part.text.empty()) continue;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = text.size();
    } else {
      ranges.push_back({begin, text.size()});
    }
  }
  return EncodeRun<State>(*state_, text, SpecialScope::within(ranges), false).run();
}

std::string Tokenizer::decode(std::span<const Token> ids, bool with_special) const {
  std::string out;
  for (const Token id : ids) {
    const TokenType kind = type(id);
    const bool special = kind == TokenType::control || kind == TokenType::unknown;
    if (kind != TokenType::unused && (with_special || !special)) state_->append_text(id, out);
  }
  if (strips_leading_space() && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

std::string Tokenizer::token_bytes(Token id) const {
  const TokenType kind = type(id);
  std::string out;
  if (kind == TokenType::normal || kind == TokenType::user_defined || kind == TokenType::byte) {
    state_->append_text(id, out);
  }
  return out;
}

std::size_t Tokenizer::size() const { return state_->tables.size(); }

TokenType Tokenizer::type(Token id) const {
  const bool known = id >= 0 && static_cast<std::size_t>(id) < size();
  return known ? state_->tables.types[static_cast<std::size_t>(id)] : TokenType::unused;
}

std::optional<Token> Tokenizer::special_id(std::string_view content) const {
  const auto found = state_->special_ids.find(content);
  if (found == state_->special_ids.end()) return std::nullopt;
  return found->second;
}

Token Tokenizer::bos() const { return state_->tables.rules.bos; }
Token Tokenizer::eos() const { return state_->tables.rules.eos; }
bool Tokenizer::add_bos() const { return state_->tables.rules.add_bos; }
bool Tokenizer::add_eos() const { return state_->tables.rules.add_eos; }
bool Tokenizer::strips_leading_space() const { return state_->tables.rules.strip_leading_space; }
TokenizerKind Tokenizer::kind() const { return state_->tables.rules.kind; }

std::string Tokenizer::summary() const {
  const TokenizerTables& tables = state_->tables;
  const auto special = std::count(tables.types.begin(), tables.types.end(), TokenType::control);
  std::string out(kKindNames[static_cast<std::size_t>(tables.rules.kind)]);
  out += ", " + with_commas(static_cast<std::int64_t>(size())) + " pieces, " +
         with_commas(special) + " special, from " + printable(tables.rules.source);
  if (tables.rules.kind == TokenizerKind::byte_bpe) {
    const auto& bytes = state_->alphabet.bytes;
    const auto missing = std::count(bytes.begin(), bytes.end(), kEmptySlot);
    if (missing > 0) out += "; " + std::to_string(missing) + " byte values have no token";
  }
  return out;
}

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Whether `text` (itself not well-formed) is the beginning of a character.
bool may_become_character(std::string_view text) {
  if (text.empty() || text.size() > 3) return false;
  // Tests whether continuation bytes complete `text`; only the second byte matters, so 3 suffice.
  for (const char second : {'\x80', '\x90', '\xa0'}) {
    std::string whole(text);
    if (whole.size() == 1) whole += second;
    while (whole.size() < 4) {
      if (utf8_length(whole) == whole.size()) return true;
      whole += '\x80';
    }
    if (utf8_length(whole) == whole.size()) return true;
  }
  return false;
}

// Length of the longest beginning of a character at the start of `text`, at least 1; one U+FFFD
// replaces it.
std::size_t broken_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && length < 3 && may_become_character(text.substr(0, length + 1))) {
    ++length;
  }
  return length;
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool at_text_start)
    : tokenizer_(&tokenizer), drop_space_(at_text_start && tokenizer.strips_leading_space()) {}

std::string StreamDecoder::push(Token id) {
  std::string bytes = tokenizer_->token_bytes(id);
  if (drop_space_ && !bytes.empty()) {
    if (bytes.front() == ' ') bytes.erase(0, 1);
    drop_space_ = false;
  }
  held_ += bytes;
  std::string out;
  std::size_t done = 0;
  while (done < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(done);
    const std::size_t length = utf8_length(rest);
    if (length == 0 && may_become_character(rest)) break;
    if (length > 0)
      out += rest.substr(0, length);
    else
      out += kReplacement;
    done += length > 0 ? length : broken_length(rest);
  }
  held_.erase(0, done);
  return out;
}

std::string StreamDecoder::finish() {
  const std::string rest = std::exchange(held_, {});
  return rest.empty() ? "" : std::string(kReplacement);
}

}  // namespace leq
