// Writes protocol buffer messages, the wire format of ONNX files: tagged fields one after another.
// Specification: protobuf.dev/programming-guides/encoding. A library would add a run-time
// dependency of some megabytes and generated code to replace a page of code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace leq {

// One message; fields are written in the order of the calls. Field numbers are 1 or larger.
class ProtobufWriter {
 public:
  // A varint; negative numbers take ten bytes, as int64 fields do.
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
