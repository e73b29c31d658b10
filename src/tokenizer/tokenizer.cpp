#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/text.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/models.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/word_cache.h"

namespace leq {
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

  bool has(Token id) const { return id >= 0 && static_cast<std::size_t>(id) < tables.size(); }
  void append_text(Token id, std::string& out) const;
};

// Appends the printed text of a piece.
void Tokenizer::State::append_text(Token id, std::string& out) const {
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
      if (good > 0) stretches(rest.substr(0, good), {done == 0, start + done == 0});
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
  void stretches(std::string_view text, PreTokenizerChain::Flags flags) {
    if (!scope_.in_ranges() || !state_.normalized_added.has_special()) return stretch(text, flags);
    for (const std::size_t start = offset_of(text); !text.empty();) {
      const std::size_t at = offset_of(text);
      const std::size_t size = scope_.next_border(at, at + text.size()) - at;
      stretch(text.substr(0, size),
              {flags.begins_segment && at == start, flags.at_text_start && at == start});
      text.remove_prefix(size);
    }
  }

  std::size_t offset_of(std::string_view part) const {
    return static_cast<std::size_t>(part.data() - text_.data());
  }

  void stretch(std::string_view text, PreTokenizerChain::Flags flags) {
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

  void pre_token(std::string_view piece) {
    if (state_.tables.cut_at_words)
      cut_words(piece, [&](std::string_view part) { word(part); });
    else
      word(piece);
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
  PreTokenizerChain::Sink pre_token_ = [this](std::string_view piece) { pre_token(piece); };
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
  return state_->has(id) ? state_->tables.types[static_cast<std::size_t>(id)] : TokenType::unused;
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

}  // namespace leq
