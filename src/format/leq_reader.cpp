#include "format/leq_reader.h"

#include <xxhash.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/huge_pages.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_layout.h"
#include "format/loaded_file.h"
#include "format/padding.h"

namespace leq {

namespace {

using StoredBlob = StoredPlane;

struct LeqIndex {
  std::vector<StoredTensor> tensors;  // ordered by offset; views without pointers
  std::vector<StoredBlob> blobs;      // ordered by offset
};

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;    // limit of one dimension
constexpr std::int64_t kMaxValues = std::int64_t{1} << 48;  // per tensor, to avoid overflow

const Json& table(const Json& json, const char* key, std::string_view source) {
  const auto found = json.find(key);
  require(found != json.end() && found->is_object(), source, ": the table \"", key,
          "\" is missing or no object");
  return *found;
}

std::uint64_t read_size(const Json& entry, const char* key, std::string_view where) {
  const auto found = entry.find(key);
  require(found != entry.end() && found->is_number_unsigned(), where, ": key \"", key,
          "\" is missing or no whole number");
  return found->get<std::uint64_t>();
}

// Reads {"offset": .., "bytes": .., "xxh3": ".."}: a byte range of the file, with its checksum.
StoredPlane read_range(const Json& entry, std::uint64_t data_end, const std::string& where) {
  require(entry.is_object(), where, ": expected an object, found ", entry.type_name());
  StoredPlane plane;
  plane.offset = read_size(entry, "offset", where);
  plane.bytes = read_size(entry, "bytes", where);
  require(plane.offset % kLeqAlignment == 0, where, ": offset ", plane.offset,
          " is no multiple of ", kLeqAlignment);
  require(plane.offset >= sizeof(LeqPreamble) && plane.offset <= data_end &&
              plane.bytes <= data_end - plane.offset,
          where, ": ", plane.bytes, " bytes at offset ", plane.offset,
          " reach outside the data, which ends at ", data_end);
  const auto hash = parse_checksum(json_get<std::string>(entry, "xxh3", where));
  require(hash.has_value(), where, ": \"xxh3\" should be 16 hex digits");
  plane.xxh3 = *hash;
  return plane;
}

Shape read_shape(const Json& entry, const std::string& where) {
  const auto found = entry.find("shape");
  require(found != entry.end() && found->is_array() && !found->empty() && found->size() <= 2, where,
          ": \"shape\" should be a list of one or two sizes");
  Shape shape;
  std::int64_t values = 1;
  for (const Json& size : *found) {
    require(size.is_number_unsigned() && size.get<std::uint64_t>() >= 1 &&
                size.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxSize),
            where, ": a size in \"shape\" should be 1 to ", kMaxSize);
    shape.push_back(size.get<std::int64_t>());
    require(shape.back() <= kMaxValues / values, where, ": shape ", shape_text(shape),
            " holds over ", kMaxValues, " values");
    values *= shape.back();
  }
  return shape;
}

WeightView read_view(const Json& entry, const Shape& shape, const std::string& where) {
  WeightView view;
  view.scheme = require_scheme(json_get<std::string>(entry, "scheme", where), where);
  require(view.scheme.scaling != Scaling::tensor, where,
          ": scheme int8-tensor does not stand in files, it is written as int8");
  const auto act_text = json_get<std::string>(entry, "act", where);
  const auto act = parse_act(act_text);
  require(act.has_value(), where, ": unknown act \"", printable(act_text),
          "\", this leq knows none, row, g128, g32, tensor and online; use a newer leq");
  view.act = *act;
  require(!is_coded(view.act) || view.scheme.takes_codes() || view.scheme.is_float(), where, ": ",
          scheme_name(view.scheme), " weights take f32 inputs, act ", act_text, " found");
  require(fits_act(view.scheme, view.act), where, ": groups of ", view.scheme.group,
          " weights span several scales of inputs with act ", act_text);
  view.rows = shape.size() == 2 ? shape[0] : 1;
  view.columns = shape.back();
  require(view.columns <= view.scheme.max_columns(), where, ": ", view.columns, " columns, a ",
          scheme_name(view.scheme), " weight has at most ", view.scheme.max_columns());
  const bool grouped = view.scheme.scaling == Scaling::group;
  require(grouped || !entry.contains("scale_mul"), where,
          ": \"scale_mul\" belongs to schemes with groups, found ", scheme_name(view.scheme));
  if (!grouped) return view;
  const auto scale_mul = json_get<double>(entry, "scale_mul", where);
  int exponent = 0;
  const double stored = static_cast<double>(static_cast<float>(scale_mul));
  const bool any_factor = view.scheme.has_byte_scales() && stored > 0;
  require(std::isfinite(stored) && stored == scale_mul &&
              (any_factor || std::frexp(stored, &exponent) == 0.5),
          where, ": \"scale_mul\" is ", scale_mul, ", expected a power of two, as f32 holds it");
  view.scale_mul = static_cast<float>(scale_mul);
  return view;
}

// Reads the keys that exist only for some input formats (acts).
void read_act_keys(const Json& entry, const std::string& where, StoredTensor& tensor) {
  const ActKind act = tensor.view.act;
  require(has_stored_scale(act) || !entry.contains("act_scale"), where,
          ": \"act_scale\" belongs to act tensor, found act ", act_name(act));
  require(has_moving_scale(act) || !entry.contains("online"), where,
          ": \"online\" belongs to act online, found act ", act_name(act));
  if (has_stored_scale(act)) {
    const auto scale = json_get<double>(entry, "act_scale", where);
    require(scale >= double{kSmallestActScale} && scale <= double{kLargestActScale}, where,
            ": \"act_scale\" is ", scale, ", expected ", kSmallestActScale, " to ",
            kLargestActScale);
    tensor.act_scale = static_cast<float>(scale);
  }
  if (has_moving_scale(act)) {
    const auto text = json_get_or<std::string>(entry, "online", "safe", where);
    const auto mode = parse_online_mode(text);
    require(mode.has_value(), where, ": unknown online mode \"", printable(text),
            "\", this leq knows safe and streaming; use a newer leq");
    tensor.online_mode = *mode;
  }
}

std::vector<StoredPlane> read_planes(const Json& entry, const WeightView& view, bool unpadded,
                                     std::uint64_t data_end, const std::string& where) {
  require(!unpadded || can_leave_out_padding(view.scheme), where, ": \"unpadded\", but ",
          scheme_name(view.scheme), " always has padding");
  const PlaneBytes bytes = unpadded ? unpadded_bytes(view.scheme, view.rows, view.columns)
                                    : plane_bytes(view.scheme, view.act, view.rows, view.columns);
  const std::array<std::pair<const char*, std::uint64_t>, 4> expected = {{{"codes", bytes.codes},
                                                                          {"scales", bytes.scales},
                                                                          {"zeros", bytes.zeros},
                                                                          {"sums", bytes.sums}}};
  const Json& stored = table(entry, "planes", where);
  std::vector<StoredPlane> planes;
  for (const auto& [name, size] : expected) {
    if (size == 0) continue;
    const auto found = stored.find(name);
    require(found != stored.end(), where, ": plane ", name, " is missing");
    StoredPlane plane = read_range(*found, data_end, where + ", plane " + name);
    require(plane.bytes == size, where, ", plane ", name, ": ", plane.bytes, " bytes, a ",
            scheme_name(view.scheme), " tensor of ", view.rows, " x ", view.columns, " takes ",
            size);
    plane.name = name;
    planes.push_back(std::move(plane));
  }
  require(planes.size() == stored.size(), where, ": ", stored.size(), " planes, a ",
          scheme_name(view.scheme), " tensor has ", planes.size());
  return planes;
}

StoredTensor read_tensor(const std::string& name, const Json& entry, std::uint64_t data_end,
                         std::string_view source) {
  const std::string where = std::string(source) + ": tensor " + printable(name);
  require(entry.is_object(), where, ": expected an object, found ", entry.type_name());
  StoredTensor tensor;
  tensor.name = name;
  tensor.shape = read_shape(entry, where);
  tensor.view = read_view(entry, tensor.shape, where);
  read_act_keys(entry, where, tensor);
  tensor.unpadded = json_get_or<bool>(entry, "unpadded", false, where);
  tensor.planes = read_planes(entry, tensor.view, tensor.unpadded, data_end, where);
  tensor.method = json_get_or<std::string>(entry, "method", "", where);
  tensor.error = json_get_or<double>(entry, "error", 0, where);
  tensor.source = json_get_or<std::string>(entry, "source", "", where);
  return tensor;
}

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
  std::string_view name;
};

void require_no_overlap(const LeqIndex& index, std::string_view source) {
  std::vector<Range> ranges;
  for (const StoredTensor& tensor : index.tensors) {
    for (const StoredPlane& plane : tensor.planes) {
      ranges.push_back({plane.offset, plane.offset + plane.bytes, tensor.name});
    }
  }
  for (const StoredBlob& blob : index.blobs) {
    if (blob.bytes > 0) ranges.push_back({blob.offset, blob.offset + blob.bytes, blob.name});
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    require(ranges[i - 1].end <= ranges[i].begin, source, ": ", printable(ranges[i - 1].name),
            " and ", printable(ranges[i].name), " overlap at offset ", ranges[i].begin);
  }
}

// Later minor versions list here the features that a reader must support to use the file.
void require_no_unknown_features(const Json& json, std::string_view source) {
  const Json& leq = table(json, "leq", source);
  const auto features = leq.find("requires");
  require(features != leq.end() && features->is_array(), source,
          ": the list \"requires\" is missing");
  for (const Json& feature : *features) {
    const std::string name = feature.is_string() ? feature.get<std::string>() : feature.type_name();
    require(name != "rotation", source,
            ": needs the feature \"rotation\": rotated (Hadamard) weights are not supported since "
            "0.2; quantize the checkpoint again, unrotated");
    const bool known =
        std::ranges::find(kLeqFeatures, name, &LeqFeature::name) != kLeqFeatures.end();
    require(feature.is_string() && known, source, ": needs the feature \"", printable(name),
            "\", which this leq does not have; use a newer leq");
  }
}

// Moves the tables out of `json`, the parsed JSON of a file whose planes are in [64, data_end).
// Checks that every plane and blob is aligned, in bounds, has the size given by its scheme and
// shape, and does not overlap another. Throws Error naming `source` and the tensor.
LeqIndex take_index(Json& json, std::uint64_t data_end, std::string_view source) {
  require(json.is_object(), source, ": the JSON should be an object, found ", json.type_name());
  require_no_unknown_features(json, source);
  LeqIndex index;
  const Json& tensors = table(json, "tensors", source);
  const Json& blobs = table(json, "blobs", source);
  for (const auto& [name, entry] : tensors.items()) {
    index.tensors.push_back(read_tensor(name, entry, data_end, source));
  }
  for (const auto& [name, entry] : blobs.items()) {
    const std::string where = std::string(source) + ": blob " + printable(name);
    index.blobs.push_back(read_range(entry, data_end, where));
    index.blobs.back().name = name;
  }
  require_no_overlap(index, source);
  std::ranges::sort(index.tensors, {},
                    [](const StoredTensor& tensor) { return tensor.planes.front().offset; });
  std::ranges::stable_sort(index.blobs, {}, &StoredBlob::offset);
  json.erase("tensors");
  json.erase("blobs");
  return index;
}

// Sets the plane pointers of a tensor's view; `file` may be null.
void bind(StoredTensor& tensor, const std::byte* file) {
  for (const StoredPlane& plane : tensor.planes) {
    const std::byte* at = file == nullptr ? nullptr : file + plane.offset;
    if (plane.name == "codes") tensor.view.codes = at;
    if (plane.name == "scales") tensor.view.scales = at;
    if (plane.name == "zeros") tensor.view.zeros = reinterpret_cast<const std::uint8_t*>(at);
    if (plane.name == "sums") tensor.view.sums = at;
  }
}

struct HashStateDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

std::uint64_t StoredTensor::bytes() const {
  std::uint64_t sum = 0;
  for (const StoredPlane& plane : planes) sum += plane.bytes;
  return sum;
}

std::uint64_t StoredTensor::memory_bytes() const { return unpadded ? padded_bytes(view) : bytes(); }

struct LeqReader::State {
  std::string name;
  std::unique_ptr<LoadedFile> file;  // null if the caller owns the bytes
  std::span<const std::byte> bytes;
  Json metadata;
  Json entries;  // tensors by name
  LeqIndex index;
  std::uint64_t fingerprint = 0;
  std::uint32_t minor_version = 0;
  HugeBuffer padded;                                // copies of tensors stored without padding
  std::map<std::string_view, std::size_t> tensors;  // keys point into `index`
  std::map<std::string_view, std::size_t> blobs;

  void open() {
    const LeqPreamble preamble = parse_preamble(bytes, bytes.size(), name);
    minor_version = preamble.minor_version;
    const auto json = bytes.subspan(preamble.json_offset, preamble.json_bytes);
    const std::uint64_t hash = fingerprint = checksum(json);
    require(hash == preamble.json_xxh3, name, ": checksum of the JSON at offset ",
            preamble.json_offset, ": expected ", checksum_text(preamble.json_xxh3), ", found ",
            checksum_text(hash), "; the file is damaged, copy or convert it again");
    metadata = parse_json(as_text(json), name, kHeaderLimits);
    if (metadata.is_object()) entries = metadata.value("tensors", Json::object());
    index = take_index(metadata, preamble.json_offset, name);
    for (std::size_t i = 0; i < index.tensors.size(); ++i) {
      bind(index.tensors[i], bytes.data());
      tensors.emplace(index.tensors[i].name, i);
    }
    for (std::size_t i = 0; i < index.blobs.size(); ++i) blobs.emplace(index.blobs[i].name, i);
  }

  // Makes the padded copies, and drops from memory what was copied.
  void pad(bool weights, bool lock) {
    std::vector<StoredTensor*> unpadded;
    for (StoredTensor& tensor : index.tensors) {
      if (tensor.unpadded) unpadded.push_back(&tensor);
    }
    if (unpadded.empty()) return;
    std::vector<std::uint64_t> at = {0};
    for (const StoredTensor* tensor : unpadded)
      at.push_back(at.back() + padded_bytes(tensor->view));
    padded = HugeBuffer(at.back(), name.c_str());
    if (!weights) {  // addresses, which tell tensors apart in a plan; nothing is written there
      for (std::size_t i = 0; i < unpadded.size(); ++i) {
        bind(*unpadded[i], nullptr);
        unpadded[i]->view.codes = padded.data() + at[i];
      }
      return;
    }
    ThreadPool pool = loading_pool(std::ssize(unpadded));
    pool.run(std::ssize(unpadded), [&](std::int64_t i, int) {
      const auto n = static_cast<std::size_t>(i);
      unpadded[n]->view = with_padding(unpadded[n]->view, padded.data() + at[n]);
      if (file == nullptr) return;
      for (const StoredPlane& plane : unpadded[n]->planes) file->drop(plane_bytes(plane));
    });
    if (lock) lock_memory(padded.bytes(), name);
  }

  // The parts of the file of which there are no padded copies.
  std::vector<FileRange> used_in_place() const {
    std::vector<FileRange> copied, used;
    for (const StoredTensor& tensor : index.tensors) {
      if (!tensor.unpadded || padded.size() == 0) continue;
      for (const StoredPlane& plane : tensor.planes) {
        copied.push_back({plane.offset, plane.offset + plane.bytes});
      }
    }
    std::ranges::sort(copied, {}, &FileRange::first);
    copied.push_back({bytes.size(), bytes.size()});
    std::size_t first = 0;
    for (const FileRange& part : copied) {  // what is shorter than the alignment is nothing's
      if (part.first >= first + kLeqAlignment) used.push_back({first, part.first});
      first = part.last;
    }
    return used;
  }

  // Loads the rest of the file after pad().
  void load(const LoadOptions& options) {
    file->load(options, used_in_place());
    bytes = file->bytes();
    for (StoredTensor& tensor : index.tensors) {
      if (!tensor.unpadded) bind(tensor, bytes.data());
    }
  }

  std::span<const std::byte> plane_bytes(const StoredPlane& plane) const {
    return bytes.subspan(plane.offset, plane.bytes);
  }
  // Whether the tensor's planes of the file are not in memory and cannot be read again.
  bool only_padded(const StoredTensor& tensor) const {
    return tensor.unpadded && padded.size() > 0 && file != nullptr && !file->mapped();
  }
};

LeqReader::LeqReader(const std::filesystem::path& path, const LoadOptions& options)
    : state_(std::make_unique<State>()) {
  state_->name = shown_name(path);
  state_->file = std::make_unique<LoadedFile>(path);
  state_->bytes = state_->file->bytes();
  state_->open();
  state_->pad(options.weights, options.lock);
  state_->load(options);
}

LeqReader::LeqReader(std::span<const std::byte> bytes, std::string name)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->bytes = bytes;
  state_->open();
  state_->pad(true, false);
}

LeqReader::~LeqReader() = default;
LeqReader::LeqReader(LeqReader&&) noexcept = default;

const std::string& LeqReader::name() const { return state_->name; }
std::uint64_t LeqReader::file_bytes() const { return state_->bytes.size(); }
std::uint64_t LeqReader::memory_bytes() const {
  std::uint64_t bytes = file_bytes();
  for (const StoredTensor& tensor : tensors())
    bytes = bytes - tensor.bytes() + tensor.memory_bytes();
  return bytes;
}
bool LeqReader::mapped() const { return state_->file != nullptr && state_->file->mapped(); }
bool LeqReader::is_whole() const { return state_->file == nullptr || state_->file->is_whole(); }
std::uint64_t LeqReader::fingerprint() const { return state_->fingerprint; }
std::uint32_t LeqReader::minor_version() const { return state_->minor_version; }
const Json& LeqReader::metadata() const { return state_->metadata; }
const std::vector<StoredTensor>& LeqReader::tensors() const { return state_->index.tensors; }

const StoredTensor* LeqReader::find(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  return found == state_->tensors.end() ? nullptr : &state_->index.tensors[found->second];
}

std::optional<std::span<const std::byte>> LeqReader::blob(std::string_view name) const {
  const auto found = state_->blobs.find(name);
  if (found == state_->blobs.end()) return std::nullopt;
  const StoredBlob& blob = state_->index.blobs[found->second];
  const auto bytes = state_->bytes.subspan(blob.offset, blob.bytes);
  require_checksum("blob " + printable(name), blob.offset, blob.xxh3, checksum(bytes));
  return bytes;
}

std::vector<std::string> LeqReader::blob_names() const {
  std::vector<std::string> names;
  for (const StoredBlob& blob : state_->index.blobs) names.push_back(blob.name);
  return names;
}

std::span<const std::byte> LeqReader::bytes(const StoredPlane& plane) const {
  return state_->plane_bytes(plane);
}

const Json& LeqReader::entry(std::string_view name) const {
  const auto found = state_->entries.find(name);
  require(found != state_->entries.end(), state_->name, ": has no tensor ", printable(name));
  return *found;
}

void LeqReader::require_checksum(const std::string& what, std::uint64_t offset,
                                 std::uint64_t expected, std::uint64_t found) const {
  require(found == expected, name(), ": ", what, " at offset ", offset, ": checksum ",
          checksum_text(expected), " expected, found ", checksum_text(found),
          "; the file is damaged, copy or convert it again");
}

void LeqReader::verify(const std::function<void(std::uint64_t, std::uint64_t)>& progress) const {
  std::uint64_t total = 0;
  for (const StoredTensor& tensor : tensors()) total += tensor.bytes();
  for (const StoredBlob& blob : state_->index.blobs) total += blob.bytes;
  std::uint64_t done = 0;
  const std::unique_ptr<XXH3_state_t, HashStateDeleter> hash(XXH3_createState());
  if (!hash) throw std::bad_alloc();
  const auto check = [&](const std::string& what, std::uint64_t offset,
                         std::span<const std::byte> bytes, std::uint64_t expected) {
    constexpr std::size_t kStep = 16u << 20;
    XXH3_64bits_reset(hash.get());
    for (std::size_t at = 0; at < bytes.size(); at += kStep) {
      const std::size_t count = std::min(kStep, bytes.size() - at);
      XXH3_64bits_update(hash.get(), bytes.data() + at, count);
      done += count;
      progress(done, total);
    }
    require_checksum(what, offset, expected, XXH3_64bits_digest(hash.get()));
  };
  for (const StoredTensor& tensor : tensors()) {
    PackedWeight stored;
    if (state_->only_padded(tensor)) stored = without_padding(tensor.view);
    for (const StoredPlane& plane : tensor.planes) {
      const std::string what = "tensor " + printable(tensor.name) + ", plane " + plane.name;
      const std::span<const std::byte> content = !state_->only_padded(tensor) ? bytes(plane)
                                                 : plane.name == "codes"      ? stored.codes
                                                 : plane.name == "scales"     ? stored.scales
                                                                              : stored.zeros;
      check(what, plane.offset, content, plane.xxh3);
      const bool has_zeros = tensor.view.scheme.kind == CodeKind::uint_;
      if (!has_zeros || plane.name != "zeros" || content.empty()) continue;
      const int most = std::min(1 << tensor.view.scheme.bits, 255);
      const int found = std::to_integer<int>(*std::ranges::max_element(content));
      require(found <= most, state_->name, ": ", what, ": a zero point of ", found, ", at most ",
              most, " for codes of ", tensor.view.scheme.bits, " bits");
    }
  }
  for (const StoredBlob& blob : state_->index.blobs) {
    check("blob " + printable(blob.name), blob.offset, bytes(blob), blob.xxh3);
  }
}

}  // namespace leq
