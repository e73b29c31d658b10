// Writes GGUF files for tests: valid files, and invalid files assembled from parts.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace leq::test {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string gguf_text(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}

// The format's numbers for the types of values.
enum GgufCode : std::uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kArray,
  kU64,
  kI64,
  kF64
};

class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;

  // Adds a key with a value of any type, given as bytes.
  void add(std::string_view key, std::uint32_t type, const std::string& bytes) {
    pairs_ += gguf_text(key) + raw(type) + bytes;
    ++pair_count;
  }
  void text(std::string_view key, std::string_view value) { add(key, kText, gguf_text(value)); }
  void u32(std::string_view key, std::uint32_t value) { add(key, kU32, raw(value)); }
  void f32(std::string_view key, float value) { add(key, kF32, raw(value)); }
  void flag(std::string_view key, bool value) { add(key, kBool, raw<std::uint8_t>(value)); }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw<std::uint32_t>(kText) + raw<std::uint64_t>(values.size());
    for (const std::string& value : values) bytes += gguf_text(value);
    add(key, kArray, bytes);
  }
  template <class T>
  void list(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    std::string bytes = raw(type) + raw<std::uint64_t>(values.size());
    for (const T value : values) bytes += raw(value);
    add(key, kArray, bytes);
  }

  // Adds a tensor. `dims` are in the file's order, fastest first.
  void tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
              const std::string& data) {
    pad(data_);
    tensor_at(name, dims, type, data_.size());
    data_ += data;
  }
  // Adds a tensor without data, at an offset in the data section.
  void tensor_at(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                 std::uint64_t offset) {
    tensors_ += gguf_text(name) + raw<std::uint32_t>(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) tensors_ += raw(dim);
    tensors_ += raw(type) + raw(offset);
    ++tensor_count;
  }

  std::uint64_t tensor_count = 0;
  std::uint64_t pair_count = 0;

  std::string bytes() const {
    std::string out =
        "GGUF" + raw(version) + raw(tensor_count) + raw(pair_count) + pairs_ + tensors_;
    if (!data_.empty()) {
      pad(out);
      out += data_;
    }
    return out;
  }

 private:
  void pad(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  }

  std::string pairs_, tensors_, data_;
};

}  // namespace leq::test
