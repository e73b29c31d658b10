// The header blob of a tokenizer: version, counts, flags and the text rules, as a sequence of
// little-endian numbers and length-prefixed strings.
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "tokenizer/tables.h"

namespace leq {
namespace {

constexpr std::uint32_t kMagic = 0x4b54514c;  // "LQTK"

class HeaderWriter {
 public:
  template <class T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    const auto bytes = as_bytes(value);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  template <std::size_t N>
  void flags(const bool (&values)[N]) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < N; ++i) bits |= std::uint32_t{values[i]} << i;
    number(bits);
  }

  std::vector<std::byte> out;
};

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, std::string_view source)
      : reader_(bytes, source), source_(source) {}

  template <class T>
  T number(std::string_view what) {
    return reader_.read<T>(what);
  }
  std::string text(std::string_view what, std::size_t limit) {
    const auto size = number<std::uint32_t>(what);
    require(size <= limit, source_, ": ", what, " of ", size, " bytes, at most ", limit,
            " are accepted");
    return std::string(as_text(reader_.take(size, what)));
  }
  // Reads a text that will be inserted in well-formed UTF-8, which the patterns require.
  std::string utf8(std::string_view what, std::size_t limit) {
    std::string value = text(what, limit);
    require(!first_invalid_utf8(value), source_, ": ", what, " is no UTF-8");
    return value;
  }
  std::size_t count(std::string_view what, std::size_t limit) {
    const auto value = number<std::uint32_t>(what);
    require(value <= limit, source_, ": ", value, " ", what, ", at most ", limit, " are accepted");
    return value;
  }
  template <class Enum>
  Enum choice(std::string_view what, Enum last) {
    const auto value = number<std::uint32_t>(what);
    require(value <= static_cast<std::uint32_t>(last), source_, ": unknown ", what, " ", value,
            ", expected at most ", static_cast<std::uint32_t>(last),
            "; the file may need a newer version of leq");
    return static_cast<Enum>(value);
  }
  template <std::size_t N>
  void flags(std::string_view what, bool* (&&values)[N]) {
    const auto bits = number<std::uint32_t>(what);
    require(bits >> N == 0, source_, ": unknown ", what, " ", bits);
    for (std::size_t i = 0; i < N; ++i) *values[i] = (bits >> i & 1) != 0;
  }
  // Reads an id below `pieces`, or kNoToken.
  Token id(std::string_view what, std::size_t pieces) {
    const auto value = number<Token>(what);
    require(value == kNoToken || (value >= 0 && static_cast<std::size_t>(value) < pieces), source_,
            ": ", what, " is ", value, ", expected -1 or an id below ", pieces);
    return value;
  }
  void finish() {
    require(reader_.left() == 0, source_, ": ", reader_.left(), " bytes after the end");
  }

 private:
  ByteReader reader_;
  std::string_view source_;
};

void write_step(HeaderWriter& out, const Normalizer& step) {
  out.number(static_cast<std::uint32_t>(step.kind));
  out.text(step.pattern);
  out.text(step.content);
}

void write_step(HeaderWriter& out, const PreTokenizer& step) {
  out.number(static_cast<std::uint32_t>(step.kind));
  out.number(static_cast<std::uint32_t>(step.behavior));
  out.number(static_cast<std::uint32_t>(step.prepend));
  out.flags({step.invert, step.cut_words});
  out.text(step.pattern);
}

void write_added(HeaderWriter& out, const AddedToken& token) {
  out.number(token.id);
  out.flags({token.special, token.lstrip, token.rstrip, token.single_word, token.normalized});
  out.text(token.content);
}

Normalizer read_normalizer(HeaderReader& in) {
  Normalizer step;
  step.kind = in.choice("normalizer", Normalizer::Kind::collapse_spaces);
  step.pattern = in.utf8("normalizer pattern", kMaxPatternBytes);
  step.content = in.utf8("normalizer content", kMaxPatternBytes);
  return step;
}

PreTokenizer read_pre_tokenizer(HeaderReader& in) {
  PreTokenizer step;
  step.kind = in.choice("pre-tokenizer", PreTokenizer::Kind::prefix_space);
  step.behavior = in.choice("split behavior", PreTokenizer::Behavior::merged_with_next);
  step.prepend = in.choice("prepend scheme", PrependScheme::always);
  in.flags("pre-tokenizer flags", {&step.invert, &step.cut_words});
  step.pattern = in.text("pre-tokenizer pattern", kMaxPatternBytes);
  return step;
}

AddedToken read_added(HeaderReader& in, std::size_t pieces, std::string_view source) {
  AddedToken token;
  token.id = in.id("added token's id", pieces);
  in.flags("added token's flags",
           {&token.special, &token.lstrip, &token.rstrip, &token.single_word, &token.normalized});
  token.content = in.text("added token", kMaxPieceBytes);
  require(token.id != kNoToken && !token.content.empty(), source,
          ": an added token without an id or a text");
  require(!token.normalized || !first_invalid_utf8(token.content), source,
          ": an added token that is no UTF-8");
  return token;
}

void read_rules(HeaderReader& in, TokenizerSpec& rules, std::size_t pieces,
                std::string_view source) {
  rules.unknown = in.id("unknown token", pieces);
  rules.bos = in.id("bos token", pieces);
  rules.eos = in.id("eos token", pieces);
  rules.source = in.text("tokenizer source", kMaxPatternBytes);
  const std::size_t normalizers = in.count("normalizers", kMaxTextSteps);
  for (std::size_t i = 0; i < normalizers; ++i) rules.normalizers.push_back(read_normalizer(in));
  const std::size_t steps = in.count("pre-tokenizers", kMaxTextSteps);
  for (std::size_t i = 0; i < steps; ++i) rules.pre_tokenizers.push_back(read_pre_tokenizer(in));
  const std::size_t added = in.count("added tokens", kMaxAddedTokens);
  for (std::size_t i = 0; i < added; ++i) rules.added.push_back(read_added(in, pieces, source));
  in.finish();
}

}  // namespace

NamedBlob write_tokenizer_header(const TokenizerSpec& spec, const HeaderNumbers& numbers) {
  HeaderWriter out;
  out.number(kMagic);
  out.number(kTokenizerTablesVersion);
  out.number(static_cast<std::uint32_t>(spec.kind));
  out.number(numbers.pieces);
  out.number(numbers.symbols);
  out.number(numbers.longest_piece_bytes);
  out.flags({spec.ignore_merges, spec.byte_fallback, spec.fuse_unknown, spec.strip_leading_space,
             spec.add_bos, spec.add_eos, numbers.cut_at_words});
  out.number(spec.unknown);
  out.number(spec.bos);
  out.number(spec.eos);
  out.text(spec.source);
  out.number(static_cast<std::uint32_t>(spec.normalizers.size()));
  for (const auto& step : spec.normalizers) write_step(out, step);
  out.number(static_cast<std::uint32_t>(spec.pre_tokenizers.size()));
  for (const auto& step : spec.pre_tokenizers) write_step(out, step);
  out.number(static_cast<std::uint32_t>(spec.added.size()));
  for (const auto& token : spec.added) write_added(out, token);
  return {std::string(kHeaderBlob), std::move(out.out)};
}

OpenedHeader read_tokenizer_header(std::span<const std::byte> bytes, std::string_view source) {
  HeaderReader in(bytes, source);
  require(in.number<std::uint32_t>("magic") == kMagic, source,
          ": not a tokenizer header (expected it to begin with \"LQTK\")");
  const auto version = in.number<std::uint32_t>("version");
  require(version == kTokenizerTablesVersion, source, ": tokenizer tables of version ", version,
          ", this program reads ", kTokenizerTablesVersion, "; convert the model again");
  OpenedHeader header;
  TokenizerSpec& rules = header.rules;
  HeaderNumbers& numbers = header.numbers;
  rules.kind = in.choice("tokenizer kind", TokenizerKind::unigram);
  numbers.pieces = static_cast<std::uint32_t>(in.count("pieces", kMaxPieces));
  numbers.symbols = static_cast<std::uint32_t>(in.count("symbols", 2 * kMaxPieces));
  require(numbers.symbols >= numbers.pieces, source, ": ", numbers.symbols, " symbols, expected ",
          numbers.pieces, " or more");
  numbers.longest_piece_bytes =
      static_cast<std::uint32_t>(in.count("bytes of the longest piece", kMaxPieceBytes));
  in.flags("tokenizer flags",
           {&rules.ignore_merges, &rules.byte_fallback, &rules.fuse_unknown,
            &rules.strip_leading_space, &rules.add_bos, &rules.add_eos, &numbers.cut_at_words});
  read_rules(in, rules, numbers.pieces, source);
  return header;
}

}  // namespace leq
