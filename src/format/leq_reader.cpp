#include "format/leq_reader.h"

#include <xxhash.h>

#include <algorithm>
#include <new>
#include <unordered_map>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_index.h"
#include "format/leq_layout.h"
#include "format/loaded_file.h"

namespace leq {
namespace {

// Sets the plane pointers of a tensor's view.
void bind(StoredTensor& tensor, const std::byte* file) {
  for (const StoredPlane& plane : tensor.planes) {
    const std::byte* at = file + plane.offset;
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

struct LeqReader::State {
  std::string name;
  std::unique_ptr<LoadedFile> file;  // null if the caller owns the bytes
  std::span<const std::byte> bytes;
  Json metadata;
  Json entries;  // tensors by name
  LeqIndex index;
  std::uint64_t fingerprint = 0;
  std::uint32_t minor_version = 0;
  std::unordered_map<std::string_view, std::size_t> tensors;  // keys point into `index`
  std::unordered_map<std::string_view, std::size_t> blobs;

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
};

LeqReader::LeqReader(const std::filesystem::path& path, const LoadOptions& options)
    : state_(std::make_unique<State>()) {
  state_->name = path.string();
  // Rejects an invalid file before its gigabytes are read.
  const auto check = [&](std::span<const std::byte> bytes) {
    parse_preamble(bytes, bytes.size(), state_->name);
  };
  state_->file = std::make_unique<LoadedFile>(path, options, check);
  state_->bytes = state_->file->bytes();
  state_->open();
}

LeqReader::LeqReader(std::span<const std::byte> bytes, std::string name)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->bytes = bytes;
  state_->open();
}

LeqReader::~LeqReader() = default;
LeqReader::LeqReader(LeqReader&&) noexcept = default;

const std::string& LeqReader::name() const { return state_->name; }

std::uint64_t LeqReader::file_bytes() const { return state_->bytes.size(); }

bool LeqReader::mapped() const { return state_->file != nullptr && state_->file->mapped(); }

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
  return state_->bytes.subspan(plane.offset, plane.bytes);
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
  const auto check = [&](const std::string& what, std::uint64_t offset, std::uint64_t bytes,
                         std::uint64_t expected) {
    constexpr std::uint64_t kStep = 16u << 20;
    XXH3_64bits_reset(hash.get());
    for (std::uint64_t at = 0; at < bytes; at += kStep) {
      const std::uint64_t count = std::min(kStep, bytes - at);
      XXH3_64bits_update(hash.get(), state_->bytes.data() + offset + at, count);
      done += count;
      progress(done, total);
    }
    require_checksum(what, offset, expected, XXH3_64bits_digest(hash.get()));
  };
  for (const StoredTensor& tensor : tensors()) {
    for (const StoredPlane& plane : tensor.planes) {
      check("tensor " + printable(tensor.name) + ", plane " + plane.name, plane.offset, plane.bytes,
            plane.xxh3);
    }
  }
  for (const StoredBlob& blob : state_->index.blobs) {
    check("blob " + printable(blob.name), blob.offset, blob.bytes, blob.xxh3);
  }
}

}  // namespace leq
