// Reads protocol buffer messages field by field; implemented from the specification of the wire
// format without sharing code with the writer.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace leq::test {

struct WireField {
  int number = 0;
  int type = 0;
  std::uint64_t value = 0;  // varint, fixed32, fixed64
  std::string bytes = {};   // length-delimited

  std::int64_t integer() const { return static_cast<std::int64_t>(value); }
  float real() const {
    const auto bits = static_cast<std::uint32_t>(value);
    float out = 0;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  std::vector<WireField> fields() {
    std::vector<WireField> all;
    while (!rest_.empty()) all.push_back(field());
    return all;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("varint of more than ten bytes");
  }
  bool ended() const { return rest_.empty(); }

 private:
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) throw std::runtime_error("message ends too early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::uint64_t fixed(std::size_t count) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(count);
    for (std::size_t i = 0; i < count; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    }
    return value;
  }
  WireField field() {
    const std::uint64_t key = varint();
    WireField out;
    out.number = static_cast<int>(key >> 3);
    out.type = static_cast<int>(key & 7);
    if (out.type == 0) {
      out.value = varint();
    } else if (out.type == 1) {
      out.value = fixed(8);
    } else if (out.type == 2) {
      const std::uint64_t length = varint();
      out.bytes = take(length);
    } else if (out.type == 5) {
      out.value = fixed(4);
    } else {
      throw std::runtime_error("wire type " + std::to_string(out.type));
    }
    return out;
  }

  std::string_view rest_;
};

// The fields of a message by their numbers.
using Message = std::multimap<int, WireField>;
inline Message message_of(std::string_view bytes) {
  Message message;
  for (WireField& field : WireReader(bytes).fields()) {
    message.emplace(field.number, std::move(field));
  }
  return message;
}
inline std::string text_of(const Message& message, int number) {
  const auto found = message.find(number);
  return found == message.end() ? std::string() : found->second.bytes;
}
inline std::int64_t integer_of(const Message& message, int number) {
  const auto found = message.find(number);
  return found == message.end() ? 0 : found->second.integer();
}
inline std::vector<Message> messages_of(const Message& message, int number) {
  std::vector<Message> all;
  const auto [first, last] = message.equal_range(number);
  for (auto it = first; it != last; ++it) all.push_back(message_of(it->second.bytes));
  return all;
}
inline std::vector<std::string> texts_of(const Message& message, int number) {
  std::vector<std::string> all;
  const auto [first, last] = message.equal_range(number);
  for (auto it = first; it != last; ++it) all.push_back(it->second.bytes);
  return all;
}

}  // namespace leq::test
