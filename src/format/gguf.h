// Parses GGUF files (llama.cpp's format, versions 2 and 3): the metadata and tensors of one file,
// as views of its bytes. Any bytes result in a GgufFile or an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf_types.h"
#include "format/tensor_source.h"

namespace leq {

inline constexpr std::string_view kGgufMagic = "GGUF";

// Type numbers as defined by the format.
enum class GgufKind : std::uint32_t {
  u8 = 0,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  array,
  u64,
  i64,
  f64,
};

struct GgufValue {
  GgufKind kind = GgufKind::u8;
  GgufKind item = GgufKind::u8;      // type of an array's items
  std::uint64_t count = 0;           // number of an array's items
  std::span<const std::byte> bytes;  // a number, a text without its length, or array items
};

// The metadata of a file by key. Getters return nullopt (an empty list) if the key is absent, and
// throw Error naming file, key and kind if the value has another kind. Integers of any width are
// interchangeable, and can also be read as floating-point numbers.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string source = "") : source_(std::move(source)) {}

  bool has(std::string_view key) const { return values_.contains(key); }
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;  // not necessarily UTF-8
  std::vector<std::int64_t> integers(std::string_view key) const;    // including bools, as 0 and 1
  std::vector<float> floats(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;
  // Like integer(), but also accepts a list of equal integers (one per layer).
  std::optional<std::int64_t> equal_integer(std::string_view key) const;

  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const std::string& source() const { return source_; }
  // Throws Error if the key already exists.
  void add(std::string_view key, const GgufValue& value);

 private:
  const GgufValue* find(std::string_view key) const;
  [[noreturn]] void fail_kind(std::string_view key, const GgufValue& value,
                              std::string_view wanted) const;
  const GgufValue* find_list(std::string_view key) const;

  std::string source_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

struct GgufTensor {
  std::string name;
  Shape shape;  // [N, K] as in Hugging Face, which reverses the file's dimensions
  const GgufType* type = nullptr;
  std::span<const std::byte> bytes;
  std::uint64_t offset = 0;  // byte offset in the file
};

struct GgufFile {
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file's table
};

// `bytes` must outlive the result. Throws Error naming `source` and the location: an unsupported
// version or byte order, counts, texts, dimensions or offsets beyond the file, a duplicate key or
// tensor, overlapping tensors, bytes after the last tensor, an unsupported type.
GgufFile parse_gguf(std::span<const std::byte> bytes, std::string_view source);

}  // namespace leq
