#include "export/protobuf_writer.h"

#include <bit>

namespace leq {
namespace {

constexpr int kVarint = 0;
constexpr int kLengthDelimited = 2;
constexpr int kFixed32 = 5;

}  // namespace

void ProtobufWriter::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
  bytes_ += static_cast<char>(value);
}

void ProtobufWriter::tag(int field, int wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}

void ProtobufWriter::integer(int field, std::int64_t value) {
  tag(field, kVarint);
  varint(static_cast<std::uint64_t>(value));
}

void ProtobufWriter::real(int field, float value) {
  tag(field, kFixed32);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
}

void ProtobufWriter::text(int field, std::string_view bytes) {
  tag(field, kLengthDelimited);
  varint(bytes.size());
  bytes_ += bytes;
}

void ProtobufWriter::message(int field, const ProtobufWriter& message) {
  text(field, message.bytes());
}

}  // namespace leq
