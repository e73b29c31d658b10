// Writes protocol buffer messages, the wire format of ONNX files: a sequence of tagged fields.
// Specification: protobuf.dev/programming-guides/encoding. A library would replace a page of code
// by a run-time dependency of some megabytes and generated code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace leq {

// One message; fields are written in call order. Field numbers are 1 or larger.
class ProtobufWriter {
 public:
  // A varint; negative numbers take ten bytes, like int64 fields.
  void integer(int field, std::int64_t value);
  void real(int field, float value);  // fixed32
  void text(int field, std::string_view bytes);
  void message(int field, const ProtobufWriter& message);

  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int wire_type);
  void varint(std::uint64_t value);

  std::string bytes_;
};

}  // namespace leq
