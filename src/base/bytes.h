// Checked little-endian reads from untrusted bytes. Lengths are checked by subtraction, so that no
// sum can overflow; errors name the source and the offset.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace leq {

static_assert(std::endian::native == std::endian::little, "leq files are read in place");

class ByteReader {
 public:
  // `source` names the bytes in errors ("model.leq"); both must outlive the reader.
  ByteReader(std::span<const std::byte> bytes, std::string_view source)
      : bytes_(bytes), source_(source) {}

  std::size_t offset() const { return offset_; }
  std::size_t left() const { return bytes_.size() - offset_; }

  // Returns the next `count` bytes without copying them.
  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    require(count <= left(), source_, ": ", what, " at offset ", offset_, " needs ", count,
            " bytes, only ", left(), " are left");
    const auto part = bytes_.subspan(offset_, static_cast<std::size_t>(count));
    offset_ += part.size();
    return part;
  }

  template <class T>
  T read(std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view source_;
  std::size_t offset_ = 0;
};

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline bool are_zeros(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The product of two sizes read from a file; throws Error if it overflows.
inline std::uint64_t checked_multiply(std::uint64_t a, std::uint64_t b, std::string_view what) {
  std::uint64_t product = 0;
  require(!__builtin_mul_overflow(a, b, &product), what, ": ", a, " x ", b, " overflows 64 bits");
  return product;
}

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace leq
