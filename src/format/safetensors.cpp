#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "format/tensor_source.h"

namespace leq {
namespace {

constexpr std::size_t kChunk = 256;  // a constant count lets the compiler vectorize the loops

using Halves = std::array<std::uint16_t, kChunk>;
using Floats = std::array<float, kChunk>;

void widen_bf16(const Halves& in, Floats& out) {
  for (std::size_t i = 0; i < kChunk; ++i) {
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(in[i]) << 16);
  }
}

// Branch-free equivalent of half.h's f16_to_f32: exponent and mantissa form a number that is too
// small by 2^112, which an exact product corrects; an exponent of all ones is restored separately.
void widen_f16(const Halves& in, Floats& out) {
  for (std::size_t i = 0; i < kChunk; ++i) {
    const std::uint32_t sign = static_cast<std::uint32_t>(in[i] & 0x8000u) << 16;
    const std::uint32_t small = static_cast<std::uint32_t>(in[i] & 0x7fffu) << 13;
    const std::uint32_t large = small >= 0x0f800000u ? 0x7f800000u : 0u;
    const auto value = std::bit_cast<std::uint32_t>(std::bit_cast<float>(small) * 0x1p112f);
    out[i] = std::bit_cast<float>(value | sign | large);
  }
}

template <class Widen>
void widen(const std::byte* bytes, std::span<float> out, Widen chunk) {
  Halves halves = {};
  Floats floats;
  for (std::size_t i = 0; i < out.size(); i += kChunk) {
    const std::size_t count = std::min(kChunk, out.size() - i);
    std::memcpy(halves.data(), bytes + i * 2, count * 2);
    chunk(halves, floats);
    std::memcpy(out.data() + i, floats.data(), count * sizeof(float));
  }
}

}  // namespace

std::string shape_text(const Shape& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes) + "]";
}

const SourceTensor* TensorSource::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const SourceTensor* TensorSource::add(SourceTensor tensor) {
  const auto [other, is_new] = by_name_.emplace(tensor.name, tensors_.size());
  if (!is_new) return &tensors_[other->second];
  tensors_.push_back(std::move(tensor));
  return nullptr;
}

void TensorSource::read(const SourceTensor& tensor, std::int64_t first,
                        std::span<float> out) const {
  read_floats(tensor, first, out);
}

std::optional<QuantScheme> TensorSource::own_scheme(const SourceTensor&) const {
  return std::nullopt;
}

bool TensorSource::read_codes(const SourceTensor&, const QuantScheme&, std::int64_t, std::int64_t,
                              ChosenCodes&) const {
  return false;
}

void require_elements(const SourceTensor& tensor, std::int64_t all, std::int64_t first,
                      std::size_t count) {
  ensure(first >= 0 && first <= all && static_cast<std::int64_t>(count) <= all - first,
         tensor.place, ": tensor ", printable(tensor.name), " has ", all, " values, ", count,
         " were asked for from ", first);
}

void read_floats(const SourceTensor& tensor, std::int64_t first, std::span<float> out) {
  const bool is_float =
      tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
  require(is_float, tensor.place, ": tensor ", printable(tensor.name), " has type ",
          tensor.file_dtype.empty() ? std::string(dtype_name(tensor.dtype))
                                    : printable(tensor.file_dtype),
          ", expected F32, F16 or BF16; convert the checkpoint to one of them");
  const std::size_t size = dtype_bytes(tensor.dtype);
  require_elements(tensor, static_cast<std::int64_t>(tensor.bytes.size() / size), first,
                   out.size());
  if (out.empty()) return;
  const std::byte* bytes = tensor.bytes.data() + static_cast<std::size_t>(first) * size;
  if (tensor.dtype == DType::f32) {
    std::memcpy(out.data(), bytes, out.size_bytes());
  } else if (tensor.dtype == DType::f16) {
    widen(bytes, out, widen_f16);
  } else {
    widen(bytes, out, widen_bf16);
  }
}

namespace {
namespace fs = std::filesystem;

// Types of the safetensors format; those without a DType are listed but cannot be read.
struct FileType {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype;
};
constexpr std::array<FileType, 17> kFileTypes = {{{"F32", 4, DType::f32},
                                                  {"F16", 2, DType::f16},
                                                  {"BF16", 2, DType::bf16},
                                                  {"I8", 1, DType::i8},
                                                  {"U8", 1, DType::u8},
                                                  {"I16", 2, DType::i16},
                                                  {"I32", 4, DType::i32},
                                                  {"F8_E4M3", 1, std::nullopt},
                                                  {"F8_E5M2", 1, std::nullopt},
                                                  {"F8_E8M0", 1, std::nullopt},
                                                  {"BOOL", 1, std::nullopt},
                                                  {"U16", 2, std::nullopt},
                                                  {"U32", 4, std::nullopt},
                                                  {"I64", 8, std::nullopt},
                                                  {"U64", 8, std::nullopt},
                                                  {"F64", 8, std::nullopt},
                                                  {"C64", 8, std::nullopt}}};

std::vector<std::uint64_t> read_sizes(const Json& entry, const char* key, std::string_view where) {
  const auto found = entry.find(key);
  require(found != entry.end() && found->is_array(), where, ": key \"", key,
          "\" is missing or no list of numbers");
  std::vector<std::uint64_t> sizes;
  for (const Json& value : *found) {
    require(value.is_number_unsigned(), where, ": key \"", key,
            "\" should hold numbers that are not negative, found ", value.type_name());
    sizes.push_back(value.get<std::uint64_t>());
  }
  return sizes;
}

struct Placed {
  std::uint64_t begin = 0;  // relative to the data after the header
  std::uint64_t end = 0;
  SourceTensor tensor;
};

Placed read_entry(const std::string& name, const Json& entry, std::string_view source,
                  std::uint64_t data_bytes) {
  const std::string where = std::string(source) + ": tensor " + printable(name);
  Placed placed;
  placed.tensor.name = name;
  placed.tensor.file_dtype = json_get<std::string>(entry, "dtype", where);
  const auto offsets = read_sizes(entry, "data_offsets", where);
  require(offsets.size() == 2 && offsets[0] <= offsets[1], where,
          ": data_offsets should be [begin, end] with begin <= end");
  placed.begin = offsets[0];
  placed.end = offsets[1];
  require(placed.end <= data_bytes, where, ": ends at offset ", placed.end, " of the data, only ",
          data_bytes, " bytes are there; the file was cut off or damaged, download it again");
  std::uint64_t elements = 1;
  for (const std::uint64_t size : read_sizes(entry, "shape", where)) {
    elements = checked_multiply(elements, size, where + ": shape");
    // Also of shapes with a 0, so that products of leading sizes do not overflow.
    require(size <= INT64_MAX && elements <= INT64_MAX, where, ": size ", size,
            " in its shape is too large");
    placed.tensor.shape.push_back(static_cast<std::int64_t>(size));
  }
  const auto* type = std::ranges::find(kFileTypes, placed.tensor.file_dtype, &FileType::name);
  const bool known = type != kFileTypes.end();
  placed.tensor.dtype = known ? type->dtype.value_or(DType::u8) : DType::u8;
  if (known) {
    const std::uint64_t expected = checked_multiply(elements, type->bytes, where + ": size");
    require(expected == placed.end - placed.begin, where, ": ", placed.tensor.file_dtype, " ",
            shape_text(placed.tensor.shape), " takes ", expected, " bytes, its data_offsets say ",
            placed.end - placed.begin);
  } else {  // at least a bit for each number, so that no shape takes memory beyond the file's size
    require(elements / 8 <= placed.end - placed.begin, where, ": ",
            printable(placed.tensor.file_dtype), " ", shape_text(placed.tensor.shape), " in ",
            placed.end - placed.begin, " bytes");
  }
  return placed;
}

std::uint64_t read_header_bytes(ByteReader& reader, std::string_view source) {
  const auto header_bytes = reader.read<std::uint64_t>("the header's length");
  // The limit of the reference implementation.
  require(header_bytes <= kHeaderLimits.bytes, source, ": header of ", header_bytes,
          " bytes, at most ", kHeaderLimits.bytes, " are accepted; is this a safetensors file?");
  return header_bytes;
}

// The tensors of a header in byte order; they must cover the data, which begin at `data_offset` of
// the file, without gaps.
std::vector<Placed> read_header(std::string_view text, std::uint64_t data_offset,
                                std::uint64_t data_bytes, std::string_view source) {
  const Json header = parse_json(text, source, kHeaderLimits);
  require(header.is_object(), source, ": the header should be a JSON object, found ",
          header.type_name());
  std::vector<Placed> all;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") all.push_back(read_entry(name, entry, source, data_bytes));
  }
  std::sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t expected = 0;
  for (Placed& placed : all) {
    require(placed.begin == expected, source, ": tensor ", printable(placed.tensor.name),
            " begins at offset ", placed.begin, " of the data, the one before ends at ", expected);
    expected = placed.end;
    placed.tensor.place =
        std::string(source) + " at offset " + std::to_string(data_offset + placed.begin);
  }
  require(expected == data_bytes, source, ": the tensors end at offset ", expected,
          " of the data, which has ", data_bytes, " bytes");
  return all;
}

std::vector<Placed> read_tensors(std::span<const std::byte> bytes, std::string_view source) {
  refuse_lfs_pointer(as_text(bytes.first(std::min(bytes.size(), kLfsPointerBytes))), source);
  ByteReader reader(bytes, source);
  const std::uint64_t header_bytes = read_header_bytes(reader, source);
  const std::string_view text = as_text(reader.take(header_bytes, "the header"));
  const auto data = bytes.subspan(reader.offset());
  std::vector<Placed> all = read_header(text, reader.offset(), data.size(), source);
  for (Placed& placed : all) {
    placed.tensor.bytes = data.subspan(static_cast<std::size_t>(placed.begin),
                                       static_cast<std::size_t>(placed.end - placed.begin));
  }
  return all;
}

class SafetensorsSource : public TensorSource {
 public:
  explicit SafetensorsSource(ArrivingFiles* arriving) : arriving_(arriving) {}

  void read(const SourceTensor& tensor, std::int64_t first, std::span<float> out) const override {
    const Awaited* const awaited = awaited_.empty() ? nullptr : &awaited_[place_of(tensor)];
    if (awaited == nullptr || awaited->file.empty()) return read_floats(tensor, first, out);
    const std::size_t size = dtype_bytes(tensor.dtype);
    require_elements(tensor, static_cast<std::int64_t>(awaited->bytes / size), first, out.size());
    std::vector<std::byte> bytes(out.size() * size);
    arriving_->read(awaited->file, awaited->first + static_cast<std::uint64_t>(first) * size,
                    bytes);
    SourceTensor part = tensor;
    part.bytes = bytes;
    read_floats(part, 0, out);
  }

  void finish() const override {
    if (arriving_ != nullptr) arriving_->finish();
  }

  void drop(const SourceTensor& tensor) const override {
    for (const MappedFile& file : files_) {
      const auto bytes = file.bytes();
      const std::less_equal<const std::byte*> not_after;
      if (not_after(bytes.data(), tensor.bytes.data()) &&
          not_after(tensor.bytes.data() + tensor.bytes.size(), bytes.data() + bytes.size())) {
        file.drop(tensor.bytes);
      }
    }
  }

  const std::vector<std::string>& notes() const { return notes_; }

  // Selects the tensors of a file that are used.
  using Wanted = std::function<bool(const std::string& tensor)>;

  bool has_file(const fs::path& path) const { return file_exists(path) || is_arriving(path); }

  // Adds the selected tensors of a file; refuses a name that occurs in another file.
  void add_file(
      const fs::path& path, const Wanted& wanted = [](const auto&) { return true; }) {
    const bool arrives = is_arriving(path);
    if (!arrives) files_.emplace_back(path);
    std::size_t left_out = 0;
    for (auto& [begin, end, tensor] :
         arrives ? read_arriving(path) : read_tensors(files_.back().bytes(), path.string())) {
      if (!wanted(tensor.name)) {
        if (left_out++ == 0) {
          notes_.push_back(path.filename().string() + ": " + printable(tensor.name) +
                           " is left out: the index does not have it there");
        }
        continue;
      }
      const SourceTensor* other = add(tensor);
      require(other == nullptr, tensor.place, ": tensor ", printable(tensor.name), " is also in ",
              other == nullptr ? "" : other->place);
      if (arriving_ == nullptr) continue;
      awaited_.resize(tensors().size());
      if (arrives) awaited_.back() = {path.filename().string(), begin, end - begin};
    }
    if (left_out > 1) notes_.back() += ", nor " + std::to_string(left_out - 1) + " others";
  }

 private:
  // Where a tensor is in an arriving file; the name is empty for tensors of other files.
  struct Awaited {
    std::string file;
    std::uint64_t first = 0, bytes = 0;
  };

  bool is_arriving(const fs::path& path) const {
    return arriving_ != nullptr && arriving_->bytes(path.filename().string()).has_value();
  }

  // Like read_tensors, but of the header alone; begin and end are offsets in the file.
  std::vector<Placed> read_arriving(const fs::path& path) {
    const std::string file = path.filename().string(), source = path.string();
    const std::uint64_t bytes = *arriving_->bytes(file);
    std::array<std::byte, sizeof(std::uint64_t)> length = {};
    require(bytes >= length.size(), source, ": has only ", bytes, " bytes");
    arriving_->read(file, 0, length);
    ByteReader reader(length, source);
    const std::uint64_t header_bytes = read_header_bytes(reader, source);
    require(header_bytes <= bytes - length.size(), source, ": header of ", header_bytes,
            " bytes in a file of ", bytes);
    std::string text(header_bytes, '\0');
    arriving_->read(file, length.size(), std::as_writable_bytes(std::span(text)));
    const std::uint64_t data_offset = length.size() + header_bytes;
    std::vector<Placed> all = read_header(text, data_offset, bytes - data_offset, source);
    for (Placed& placed : all) {
      placed.begin += data_offset;
      placed.end += data_offset;
    }
    return all;
  }

  ArrivingFiles* arriving_;
  std::vector<std::string> notes_;
  std::vector<MappedFile> files_;
  std::vector<Awaited> awaited_;  // by place; empty without arriving files
};

// Opens the shards of the index and checks that each tensor is in the shard that the index names.
void add_shards(SafetensorsSource& source, const fs::path& index_path) {
  const std::string place = index_path.string();
  const Json index = parse_json(read_file(index_path, kMaxJsonBytes), place);
  require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
          place, ": expected a JSON object with a table \"weight_map\"");
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    require(file.is_string(), place, ": tensor ", printable(tensor),
            " should name its file, found ", file.type_name());
    const auto shard = file.get<std::string>();
    require(!shard.empty() && shard.find('/') == std::string::npos && shard != "..", place,
            ": tensor ", printable(tensor), " names the file \"", printable(shard),
            "\", expected a file beside the index");
    if (!shards.insert(shard).second) continue;
    require(source.has_file(index_path.parent_path() / shard), place, ": tensor ",
            printable(tensor), " lies in ", printable(shard),
            ", which is not in the folder; download that file too");
  }
  const Json& map = index["weight_map"];
  for (const std::string& shard : shards) {
    source.add_file(index_path.parent_path() / shard, [&](const std::string& tensor) {
      return map.contains(tensor) && map[tensor].text() == shard;
    });
  }
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const auto shard = (index_path.parent_path() / file.get<std::string>()).string();
    const SourceTensor* found = source.find(tensor);
    require(found != nullptr && found->place.starts_with(shard + " at "), place, ": tensor ",
            printable(tensor), " should lie in ", printable(shard), ", but ",
            found == nullptr ? "no file has it" : found->place + " has it");
  }
}

fs::path find_in_folder(const fs::path& folder, const SafetensorsSource& source) {
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    if (source.has_file(folder / name)) return folder / name;
  }
  refuse_adapter(folder);
  const bool has_pickle = file_exists(folder / "pytorch_model.bin") ||
                          file_exists(folder / "pytorch_model.bin.index.json");
  fail(folder.string(), ": no model.safetensors and no model.safetensors.index.json here",
       has_pickle ? "; pytorch_model.bin is not read, convert it to safetensors first"
                  : "; give the folder of a downloaded checkpoint");
}

}  // namespace

void refuse_adapter(const fs::path& folder) {
  require(!file_exists(folder / "adapter_config.json"), folder.string(),
          ": is an adapter (adapter_config.json), not a model; merge it into its base model first "
          "(docs/quantizing.md#adapters)");
}

std::unique_ptr<TensorSource> open_safetensors(const fs::path& path,
                                               std::vector<std::string>* notes,
                                               ArrivingFiles* arriving) {
  require(file_exists(path), ErrorKind::io, path.string(), ": no such file or folder");
  std::error_code error;
  auto source = std::make_unique<SafetensorsSource>(arriving);
  const fs::path file = fs::is_directory(path, error) ? find_in_folder(path, *source) : path;
  if (file.extension() == ".json") {
    add_shards(*source, file);
  } else {
    source->add_file(file);
  }
  if (notes != nullptr) *notes = source->notes();
  return source;
}

}  // namespace leq
