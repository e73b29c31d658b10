// The getters of a GGUF file's metadata.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "format/gguf.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 13> kKindNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "text", "array", "u64", "i64", "f64"};

std::string kind_text(const GgufValue& value) {
  const auto name = [](GgufKind kind) {
    return std::string(kKindNames[static_cast<std::size_t>(kind)]);
  };
  if (value.kind != GgufKind::array) return name(value.kind);
  return "array of " + std::to_string(value.count) + " " + name(value.item);
}

template <class T>
T read_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Returns nullopt if the value is not an integer or needs more than 63 bits.
std::optional<std::int64_t> integer_of(GgufKind kind, const std::byte* bytes) {
  switch (kind) {
    case GgufKind::u8:
      return read_as<std::uint8_t>(bytes);
    case GgufKind::i8:
      return read_as<std::int8_t>(bytes);
    case GgufKind::u16:
      return read_as<std::uint16_t>(bytes);
    case GgufKind::i16:
      return read_as<std::int16_t>(bytes);
    case GgufKind::u32:
      return read_as<std::uint32_t>(bytes);
    case GgufKind::i32:
      return read_as<std::int32_t>(bytes);
    case GgufKind::i64:
      return read_as<std::int64_t>(bytes);
    case GgufKind::u64: {
      const auto value = read_as<std::uint64_t>(bytes);
      if (value > INT64_MAX) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::size_t item_bytes(const GgufValue& list) {
  return list.count == 0 ? 0 : list.bytes.size() / static_cast<std::size_t>(list.count);
}

}  // namespace

void GgufMetadata::add(std::string_view key, const GgufValue& value) {
  const bool is_new = values_.emplace(std::string(key), value).second;
  require(is_new, source_, ": key ", printable(key), " is given twice");
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void GgufMetadata::fail_kind(std::string_view key, const GgufValue& value,
                             std::string_view wanted) const {
  fail(source_, ": key ", printable(key), " should hold ", wanted, ", found ", kind_text(value));
}

std::optional<std::int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = integer_of(value->kind, value->bytes.data());
  if (!number) fail_kind(key, *value, "an integer of at most 63 bits");
  return number;
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  double number = 0;
  if (value->kind == GgufKind::f32) {
    number = static_cast<double>(read_as<float>(value->bytes.data()));
  } else if (value->kind == GgufKind::f64) {
    number = read_as<double>(value->bytes.data());
  } else {
    number = static_cast<double>(*integer(key));
  }
  require(std::isfinite(number), source_, ": key ", printable(key), " is ", number);
  return number;
}

std::optional<bool> GgufMetadata::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind != GgufKind::boolean) fail_kind(key, *value, "a bool");
  return value->bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind != GgufKind::text) fail_kind(key, *value, "a text");
  return as_text(value->bytes);
}

const GgufValue* GgufMetadata::find_list(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && value->kind != GgufKind::array) fail_kind(key, *value, "an array");
  return value;
}

std::vector<std::int64_t> GgufMetadata::integers(std::string_view key) const {
  const GgufValue* list = find_list(key);
  std::vector<std::int64_t> all;
  if (list == nullptr) return all;
  const GgufKind item = list->item == GgufKind::boolean ? GgufKind::u8 : list->item;
  for (std::size_t i = 0; i < list->count; ++i) {
    const auto number = integer_of(item, list->bytes.data() + i * item_bytes(*list));
    if (!number) fail_kind(key, *list, "an array of integers");
    all.push_back(*number);
  }
  return all;
}

std::vector<float> GgufMetadata::floats(std::string_view key) const {
  const GgufValue* list = find_list(key);
  std::vector<float> all;
  if (list == nullptr) return all;
  if (list->item != GgufKind::f32) fail_kind(key, *list, "an array of f32");
  for (std::size_t i = 0; i < list->count; ++i) {
    all.push_back(read_as<float>(list->bytes.data() + i * sizeof(float)));
  }
  return all;
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
  const GgufValue* list = find_list(key);
  std::vector<std::string_view> all;
  if (list == nullptr) return all;
  if (list->item != GgufKind::text) fail_kind(key, *list, "an array of texts");
  ByteReader reader(list->bytes, source_);
  for (std::uint64_t i = 0; i < list->count; ++i) {
    all.push_back(as_text(reader.take(reader.read<std::uint64_t>("a length"), "a text")));
  }
  return all;
}

std::optional<std::int64_t> GgufMetadata::equal_integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr || value->kind != GgufKind::array) return integer(key);
  const std::vector<std::int64_t> all = integers(key);
  require(!all.empty(), source_, ": key ", printable(key), " is an empty array");
  for (const std::int64_t number : all) {
    require(number == all.front(), source_, ": key ", printable(key), " differs between layers (",
            all.front(), ", ", number, "), which is not supported");
  }
  return all.front();
}

}  // namespace leq
