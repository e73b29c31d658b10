#include "convert/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"

namespace leq {
namespace {

struct ProtobufField {
  std::uint32_t number = 0;
  std::uint64_t value = 0;           // varint and fixed fields
  std::span<const std::byte> bytes;  // length-delimited fields

  std::string_view text() const { return as_text(bytes); }
  bool flag() const { return value != 0; }
  std::int32_t integer() const { return static_cast<std::int32_t>(value); }
  float number32() const { return std::bit_cast<float>(static_cast<std::uint32_t>(value)); }
};

// Iterates over the fields of one protobuf message. Never crashes: any bytes result in fields or in
// an Error with an offset.
class ProtobufReader {
 public:
  ProtobufReader(std::span<const std::byte> message, std::string_view source)
      : reader_(message, source), source_(source) {}

  // Reads the next field; false at the end of the message.
  bool next(ProtobufField& field) {
    if (reader_.left() == 0) return false;
    const std::uint64_t tag = varint();
    field = {};
    field.number = static_cast<std::uint32_t>(tag >> 3);
    require(tag >> 3 > 0 && tag >> 3 < (1u << 29), source_, ": invalid protobuf field number ",
            tag >> 3, " at offset ", reader_.offset(), "; the file is damaged or of another kind");
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = reader_.read<std::uint64_t>("a protobuf number");
        break;
      case 2:
        field.bytes = reader_.take(varint(), "a protobuf field");
        break;
      case 5:
        field.value = reader_.read<std::uint32_t>("a protobuf number");
        break;
      default:
        fail(source_, ": protobuf wire type ", tag & 7, " at offset ", reader_.offset(),
             " is not supported; the file may be damaged");
    }
    return true;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = reader_.read<std::uint8_t>("a protobuf number");
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail(source_, ": protobuf number of more than ten bytes at offset ", reader_.offset());
  }

  ByteReader reader_;
  std::string_view source_;
};

// Field numbers and values of sentencepiece_model.proto.
enum ModelField { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5 };
enum PieceField { kPiece = 1, kScore = 2, kType = 3 };
enum PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};
enum TrainerField {
  kModelType = 3,
  kWhitespaceAsSuffix = 24,
  kByteFallback = 35,
  kBosPiece = 46,
  kEosPiece = 47
};
enum ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
enum NormalizerField {
  kPrecompiledCharsmap = 2,
  kAddDummyPrefix = 3,
  kRemoveExtraWhitespaces = 4,
  kEscapeWhitespaces = 5
};

struct ModelRules {
  int model_type = kUnigram;
  bool whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

TokenType piece_type(int type, std::string_view source) {
  switch (type) {
    case kNormal:
      return TokenType::normal;
    case kUnknown:
      return TokenType::unknown;
    case kControl:
      return TokenType::control;
    case kUserDefined:
      return TokenType::user_defined;
    case kByte:
      return TokenType::byte;
    case kUnused:
      fail(source, ": piece type UNUSED is not supported");
    default:
      fail(source, ": piece type ", type, " is not known");
  }
}

void read_piece(std::span<const std::byte> bytes, std::string_view source, TokenizerSpec& spec) {
  std::string_view text;
  float score = 0.0f;
  int type = kNormal;
  ProtobufReader reader(bytes, source);
  for (ProtobufField field; reader.next(field);) {
    if (field.number == kPiece) text = field.text();
    if (field.number == kScore) score = field.number32();
    if (field.number == kType) type = field.integer();
  }
  const std::size_t id = spec.pieces.size();
  require(id < kMaxPieces, source, ": more than ", kMaxPieces, " pieces");
  require(!text.empty() && text.size() <= kMaxPieceBytes && !first_invalid_utf8(text), source,
          ": piece ", id, " must be 1 to ", kMaxPieceBytes, " bytes of UTF-8");
  require(std::isfinite(score), source, ": the score of piece ", id, " is ", score);
  spec.pieces.emplace_back(text);
  spec.types.push_back(piece_type(type, source));
  spec.scores.push_back(score);
}

void read_trainer(std::span<const std::byte> bytes, std::string_view source, ModelRules& rules) {
  ProtobufReader reader(bytes, source);
  for (ProtobufField field; reader.next(field);) {
    if (field.number == kModelType) rules.model_type = field.integer();
    if (field.number == kWhitespaceAsSuffix) rules.whitespace_as_suffix = field.flag();
    if (field.number == kByteFallback) rules.byte_fallback = field.flag();
    if (field.number == kBosPiece) rules.bos_piece = field.text();
    if (field.number == kEosPiece) rules.eos_piece = field.text();
  }
}

void read_rules(std::span<const std::byte> bytes, std::string_view source, ModelRules& rules) {
  ProtobufReader reader(bytes, source);
  for (ProtobufField field; reader.next(field);) {
    require(field.number != kPrecompiledCharsmap || field.bytes.empty(), source,
            ": normalizer precompiled_charsmap of ", field.bytes.size(),
            " bytes is not supported; a tokenizer.json may be read instead");
    if (field.number == kAddDummyPrefix) rules.add_dummy_prefix = field.flag();
    if (field.number == kRemoveExtraWhitespaces) rules.remove_extra_whitespaces = field.flag();
    if (field.number == kEscapeWhitespaces) rules.escape_whitespaces = field.flag();
  }
}

void apply_rules(const ModelRules& rules, TokenizerSpec& spec) {
  const std::string_view source = spec.source;
  require(rules.model_type == kUnigram || rules.model_type == kBpe, source, ": model type ",
          rules.model_type == kWord   ? "WORD"
          : rules.model_type == kChar ? "CHAR"
                                      : "unknown",
          " is not supported, only UNIGRAM and BPE are");
  require(!rules.whitespace_as_suffix, source, ": treat_whitespace_as_suffix is not supported");
  require(rules.escape_whitespaces, source, ": escape_whitespaces = false is not supported");
  spec.kind = rules.model_type == kBpe ? TokenizerKind::sentencepiece_bpe : TokenizerKind::unigram;
  spec.merge_order = MergeOrder::by_score;
  spec.byte_fallback = rules.byte_fallback;
  spec.fuse_unknown = true;
  spec.strip_leading_space = rules.add_dummy_prefix;
  if (rules.remove_extra_whitespaces) {
    spec.normalizers.push_back({Normalizer::Kind::collapse_spaces, "", ""});
  }
  if (rules.add_dummy_prefix) {
    spec.normalizers.push_back({Normalizer::Kind::prepend, "", std::string(kSpaceMark)});
  }
  spec.normalizers.push_back({Normalizer::Kind::replace, " ", std::string(kSpaceMark)});
}

// Control tokens are matched in the raw text, user-defined ones after normalization.
void add_model_tokens(const ModelRules& rules, TokenizerSpec& spec) {
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    const TokenType type = spec.types[id];
    if (type == TokenType::normal || type == TokenType::byte) continue;
    const std::string& piece = spec.pieces[id];
    if (type == TokenType::unknown) {
      require(spec.unknown == kNoToken, spec.source, ": two pieces of type UNKNOWN");
      spec.unknown = static_cast<Token>(id);
    }
    AddedToken token;
    token.id = static_cast<Token>(id);
    token.content = piece;
    token.special = type != TokenType::user_defined;
    token.normalized = !token.special;
    spec.added.push_back(std::move(token));
    if (type != TokenType::control) continue;
    if (piece == rules.bos_piece) spec.bos = static_cast<Token>(id);
    if (piece == rules.eos_piece) spec.eos = static_cast<Token>(id);
  }
  require(spec.added.size() <= kMaxAddedTokens, spec.source, ": ", spec.added.size(),
          " control and user-defined pieces, at most ", kMaxAddedTokens, " are accepted");
}

}  // namespace

TokenizerSpec read_sentencepiece_model(std::span<const std::byte> bytes, std::string_view source) {
  TokenizerSpec spec;
  spec.source = source;
  ModelRules rules;
  ModelRules unused;
  ProtobufReader reader(bytes, source);
  for (ProtobufField field; reader.next(field);) {
    if (field.number == kPieces) read_piece(field.bytes, source, spec);
    if (field.number == kTrainerSpec) read_trainer(field.bytes, source, rules);
    if (field.number == kNormalizerSpec) read_rules(field.bytes, source, rules);
    if (field.number == kDenormalizerSpec) read_rules(field.bytes, source, unused);
  }
  require(!spec.pieces.empty(), source, ": no pieces; the file may be no sentencepiece model");
  apply_rules(rules, spec);
  add_model_tokens(rules, spec);
  return spec;
}

}  // namespace leq
