// GGUF files (llama.cpp's format, versions 2 and 3): metadata and tensors of one file, in place.
// The parser is total: any bytes give a GgufFile or an Error.
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

// Numbers of the format.
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
  GgufKind item = GgufKind::u8;      // of an array
  std::uint64_t count = 0;           // of an array
  std::span<const std::byte> bytes;  // a number, a text without its length, or an array's items
};

// The metadata of a file by key. Getters return nullopt (lists: an empty one) where the key is
// absent, and throw Error naming file, key and kind where it holds something else. Integers of any
// width serve as one another, and as numbers.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string source = "") : source_(std::move(source)) {}

  bool has(std::string_view key) const { return values_.contains(key); }
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;  // any bytes
  std::vector<std::int64_t> integers(std::string_view key) const;  // bools too, as 0 and 1
  std::vector<float> floats(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;
  // As integer(), also for a list of equal integers (one for each layer).
  std::optional<std::int64_t> equal_integer(std::string_view key) const;

  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const std::string& source() const { return source_; }
  // Throws Error where the key is there already.
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
  Shape shape;  // [N, K] as Hugging Face has it: the file's dimensions turned round
  const GgufType* type = nullptr;
  std::span<const std::byte> bytes;
  std::uint64_t offset = 0;  // of the file
};

struct GgufFile {
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file's table
};

// `bytes` must outlive the result. Throws Error naming `source` and the place: another version or
// byte order, counts, texts, dimensions or offsets beyond the file, a key or a tensor given twice,
// tensors that overlap, bytes after the last tensor, a type that is not read.
GgufFile parse_gguf(std::span<const std::byte> bytes, std::string_view source);

}  // namespace leq
