#include "format/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr int kMaxNesting = 4;                 // arrays of arrays
constexpr std::uint64_t kMaxKeyBytes = 65535;  // limit of the format
constexpr std::uint64_t kMaxNameBytes = 1024;  // of tensor names; llama.cpp accepts 64
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kMaxAlignment = 1 << 20;

struct Kind {
  std::string_view name;
  std::uint64_t bytes;  // size of a number; 0 for texts and arrays
  enum { not_integer, natural, integer } form;
};
constexpr std::array<Kind, 13> kKinds = {{{"u8", 1, Kind::natural},
                                          {"i8", 1, Kind::integer},
                                          {"u16", 2, Kind::natural},
                                          {"i16", 2, Kind::integer},
                                          {"u32", 4, Kind::natural},
                                          {"i32", 4, Kind::integer},
                                          {"f32", 4, Kind::not_integer},
                                          {"bool", 1, Kind::not_integer},
                                          {"text", 0, Kind::not_integer},
                                          {"array", 0, Kind::not_integer},
                                          {"u64", 8, Kind::natural},
                                          {"i64", 8, Kind::integer},
                                          {"f64", 8, Kind::not_integer}}};

const Kind& kind_of(GgufKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string_view source)
      : bytes_(bytes), source_(source), reader_(bytes, source) {}

  GgufFile parse() {
    GgufFile file;
    file.metadata = GgufMetadata(std::string(source_));
    file.version = read_version();
    const auto tensors = reader_.read<std::uint64_t>("the number of tensors");
    const auto pairs = reader_.read<std::uint64_t>("the number of metadata keys");
    for (std::uint64_t i = 0; i < pairs; ++i) read_pair(file.metadata);
    file.alignment = alignment_of(file.metadata);
    // The list is not reserved in advance: a wrong count is noticed when the file's bytes run out.
    for (std::uint64_t i = 0; i < tensors; ++i) file.tensors.push_back(read_tensor());
    place_tensors(file);
    return file;
  }

 private:
  std::uint32_t read_version() {
    require(as_text(reader_.take(kGgufMagic.size(), "the magic")) == kGgufMagic, source_,
            ": does not begin with GGUF; is this a GGUF file?");
    const auto version = reader_.read<std::uint32_t>("the version");
    require((version & 0xffffu) != 0, source_,
            ": is a big-endian GGUF file, which is not read; get the little-endian one");
    require(version != 1, source_, ": GGUF version 1 is not read; convert the model again");
    require(version == 2 || version == 3, source_, ": GGUF version ", version,
            " is not known, expected 2 or 3");
    return version;
  }

  std::string_view read_text(std::string_view what, std::uint64_t most) {
    const auto length = reader_.read<std::uint64_t>(what);
    require(length <= most, source_, ": ", what, " at offset ", reader_.offset(), " has ", length,
            " bytes, at most ", most, " are accepted");
    return as_text(reader_.take(length, what));
  }

  // Unlike require(), escapes the key only if there is an error: files have many keys and items.
  template <class... Parts>
  [[noreturn]] void fail_at(std::string_view key, const Parts&... parts) const {
    fail(source_, ": key ", printable(key), parts...);
  }

  GgufKind read_kind(std::string_view key) {
    const auto kind = reader_.read<std::uint32_t>("a value's type");
    if (kind > static_cast<std::uint32_t>(GgufKind::f64)) {
      fail_at(key, " has value type ", kind, ", which is not known");
    }
    return static_cast<GgufKind>(kind);
  }

  void read_pair(GgufMetadata& metadata) {
    const std::string_view key = read_text("a key", kMaxKeyBytes);
    require(!key.empty(), source_, ": an empty key before offset ", reader_.offset());
    metadata.add(key, read_value(read_kind(key), key, 0));
  }

  GgufValue read_value(GgufKind kind, std::string_view key, int depth) {
    GgufValue value;
    value.kind = kind;
    if (kind == GgufKind::array) {
      read_array(value, key, depth);
    } else if (kind == GgufKind::text) {
      value.bytes = as_bytes(read_text("a text", bytes_.size()));
    } else {
      value.bytes = reader_.take(kind_of(kind).bytes, "a number");
      const int first = std::to_integer<int>(value.bytes[0]);
      if (kind == GgufKind::boolean && first > 1) {
        fail_at(key, " should be true or false, found byte ", first);
      }
    }
    return value;
  }

  void read_array(GgufValue& value, std::string_view key, int depth) {
    if (depth >= kMaxNesting) {
      fail_at(key, " nests arrays more than ", kMaxNesting, " deep");
    }
    value.item = read_kind(key);
    value.count = reader_.read<std::uint64_t>("the length of an array");
    const std::size_t begin = reader_.offset();
    if (const std::uint64_t size = kind_of(value.item).bytes; size > 0) {
      reader_.take(checked_multiply(value.count, size, std::string(source_) + ": an array"),
                   "an array");
    } else {
      for (std::uint64_t i = 0; i < value.count; ++i) read_value(value.item, key, depth + 1);
    }
    value.bytes = bytes_.subspan(begin, reader_.offset() - begin);
  }

  std::uint64_t alignment_of(const GgufMetadata& metadata) const {
    const std::int64_t alignment = metadata.integer("general.alignment").value_or(32);
    require(alignment > 0 && alignment <= static_cast<std::int64_t>(kMaxAlignment) &&
                std::has_single_bit(static_cast<std::uint64_t>(alignment)),
            source_, ": general.alignment is ", alignment, ", expected a power of two up to ",
            kMaxAlignment);
    return static_cast<std::uint64_t>(alignment);
  }

  // The result's offset is relative to the data section until place_tensors() resolves it.
  GgufTensor read_tensor() {
    GgufTensor tensor;
    tensor.name = read_text("the name of a tensor", kMaxNameBytes);
    const std::string where = std::string(source_) + ": tensor " + printable(tensor.name);
    const auto dims = reader_.read<std::uint32_t>("the number of dimensions");
    require(dims >= 1 && dims <= kMaxDims, where, ": ", dims, " dimensions, expected 1 to ",
            kMaxDims);
    for (std::uint32_t i = 0; i < dims; ++i) {
      const auto size = reader_.read<std::uint64_t>("a dimension");
      require(size >= 1 && size <= INT64_MAX, where, ": dimension of ", size);
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    tensor.type = &require_gguf_type(reader_.read<std::uint32_t>("a tensor's type"), where);
    tensor.offset = reader_.read<std::uint64_t>("a tensor's offset");
    return tensor;
  }

  std::uint64_t bytes_of(const GgufTensor& tensor, const std::string& where) const {
    const GgufType& type = *tensor.type;
    require(tensor.shape.back() % type.elements == 0, where, ": rows of ", tensor.shape.back(),
            " numbers are no whole blocks of ", type.elements, " (", type.name, ")");
    std::uint64_t blocks = static_cast<std::uint64_t>(tensor.shape.back() / type.elements);
    for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
      blocks = checked_multiply(blocks, static_cast<std::uint64_t>(tensor.shape[i]), where);
    }
    return checked_multiply(blocks, static_cast<std::uint64_t>(type.bytes), where);
  }

  // Resolves and checks the tensors' byte ranges: aligned, in bounds, unique names, no overlap.
  void place_tensors(GgufFile& file) const {
    const std::uint64_t header = reader_.offset();
    const std::uint64_t data = (header + file.alignment - 1) / file.alignment * file.alignment;
    std::set<std::string_view> names;
    for (GgufTensor& tensor : file.tensors) {
      const std::string where = std::string(source_) + ": tensor " + printable(tensor.name);
      require(names.insert(tensor.name).second, where, " is given twice");
      const std::uint64_t size = bytes_of(tensor, where);
      require(tensor.offset % file.alignment == 0, where, ": offset ", tensor.offset,
              " is no multiple of ", file.alignment);
      const std::uint64_t available = data <= bytes_.size() ? bytes_.size() - data : 0;
      require(tensor.offset <= available && size <= available - tensor.offset, where, ": needs ",
              size, " bytes at offset ", tensor.offset, " of the data, which has ", available,
              "; the file was cut off or damaged, download it again");
      tensor.offset += data;
      tensor.bytes =
          bytes_.subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(size));
    }
    check_order(file, data);
  }

  void check_order(const GgufFile& file, std::uint64_t data) const {
    std::vector<const GgufTensor*> order;
    for (const GgufTensor& tensor : file.tensors) order.push_back(&tensor);
    std::ranges::sort(order, {}, &GgufTensor::offset);
    std::uint64_t end = data;
    for (const GgufTensor* tensor : order) {
      require(tensor->offset >= end, source_, ": tensor ", printable(tensor->name),
              " overlaps the one before it");
      end = tensor->offset + tensor->bytes.size();
    }
    end = (end + file.alignment - 1) / file.alignment * file.alignment;
    const auto rest = bytes_.subspan(std::min<std::uint64_t>(bytes_.size(), end));
    require(are_zeros(rest), source_, ": ", rest.size(),
            " bytes after the last tensor; parts that were joined with cat are no GGUF file: keep "
            "them apart and name the first");
  }

  std::span<const std::byte> bytes_;
  std::string_view source_;
  ByteReader reader_;
};

}  // namespace

GgufFile parse_gguf(std::span<const std::byte> bytes, std::string_view source) {
  return GgufParser(bytes, source).parse();
}

// The getters of a GGUF file's metadata.

namespace {

std::string kind_text(const GgufValue& value) {
  const std::string name(kind_of(value.kind).name);
  if (value.kind != GgufKind::array) return name;
  return "array of " + std::to_string(value.count) + " " + std::string(kind_of(value.item).name);
}

template <class T>
T read_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Returns nullopt if the value is not an integer or needs more than 63 bits.
std::optional<std::int64_t> integer_of(GgufKind kind, const std::byte* bytes) {
  const Kind& of = kind_of(kind);
  if (of.form == Kind::not_integer) return std::nullopt;
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes, of.bytes);
  if (of.form == Kind::natural && bits > INT64_MAX) return std::nullopt;
  const int unused = of.form == Kind::natural ? 0 : static_cast<int>(64 - 8 * of.bytes);
  return static_cast<std::int64_t>(bits << unused) >> unused;  // extends the sign
}

std::size_t item_bytes(const GgufValue& list) {
  return list.count == 0 ? 0 : list.bytes.size() / static_cast<std::size_t>(list.count);
}

}  // namespace

void GgufMetadata::add(std::string_view key, const GgufValue& value) {
  const bool is_new = values_.emplace(std::string(key), value).second;
  if (!is_new) fail(source_, ": key ", printable(key), " is given twice");
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
  if (all.empty()) fail(source_, ": key ", printable(key), " is an empty array");
  const auto other = std::ranges::find_if(all, [&](std::int64_t n) { return n != all.front(); });
  if (other != all.end()) {
    fail(source_, ": key ", printable(key), " differs between layers (", all.front(), ", ", *other,
         "), which is not supported");
  }
  return all.front();
}

}  // namespace leq
