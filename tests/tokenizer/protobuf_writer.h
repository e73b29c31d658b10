// Writes sentencepiece models field by field, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace leq::test {

class ProtobufWriter {
 public:
  ProtobufWriter& varint(std::uint32_t field, std::uint64_t value) {
    number(std::uint64_t{field} << 3);
    number(value);
    return *this;
  }
  ProtobufWriter& text(std::uint32_t field, std::string_view value) {
    number(std::uint64_t{field} << 3 | 2);
    number(value.size());
    out += value;
    return *this;
  }
  ProtobufWriter& real(std::uint32_t field, float value) {
    number(std::uint64_t{field} << 3 | 5);
    char bytes[4];
    std::memcpy(bytes, &value, 4);
    out.append(bytes, 4);
    return *this;
  }

  std::string out;

 private:
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  }
};

enum class SpType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

inline void add_sp_piece(ProtobufWriter& model, std::string_view piece, float score, SpType type) {
  ProtobufWriter inner;
  inner.text(1, piece).real(2, score).varint(3, static_cast<std::uint64_t>(type));
  model.text(1, inner.out);
}

// Writes <unk>, <s> and </s>; pieces follow. `model_type`: 1 is unigram, 2 is BPE.
inline ProtobufWriter start_sp_model(std::uint64_t model_type) {
  ProtobufWriter model;
  add_sp_piece(model, "<unk>", 0, SpType::unknown);
  add_sp_piece(model, "<s>", 0, SpType::control);
  add_sp_piece(model, "</s>", 0, SpType::control);
  ProtobufWriter trainer;
  trainer.varint(3, model_type);
  model.text(2, trainer.out);
  ProtobufWriter normalizer;
  normalizer.text(1, "identity").varint(3, 1).varint(4, 0).varint(5, 1);
  model.text(3, normalizer.out);
  return model;
}

}  // namespace leq::test
