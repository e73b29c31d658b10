// Iterates over the fields of one protobuf message. Never crashes: any bytes result in fields or in
// an Error with an offset.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace leq {

struct ProtobufField {
  std::uint32_t number = 0;
  std::uint64_t value = 0;           // varint and fixed fields
  std::span<const std::byte> bytes;  // length-delimited fields

  std::string_view text() const { return as_text(bytes); }
  bool flag() const { return value != 0; }
  std::int32_t integer() const { return static_cast<std::int32_t>(value); }
  float number32() const { return std::bit_cast<float>(static_cast<std::uint32_t>(value)); }
};

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

}  // namespace leq
