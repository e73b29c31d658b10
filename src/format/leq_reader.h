// Opens a .leq file: checks everything except the planes' checksums (see verify), and provides
// tensors and blobs as views of the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "format/tensor_source.h"
#include "tensor/weight_layout.h"

namespace leq {

struct StoredPlane {
  std::string name;  // "codes", "scales", "zeros", "sums"
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;
};

struct StoredTensor {
  std::string name;
  Shape shape;  // 1 or 2 dimensions; a vector [n] has a view of 1 row and n columns
  WeightView view;
  std::vector<StoredPlane> planes;
  std::string method;   // "absmax", "none" for floats
  double error = 0;     // relative squared error of the weights, 0 for floats
  std::string source;   // type in a mixed checkpoint: "Q4_K"; else empty
  float act_scale = 0;  // act tensor: the step between two codes of the inputs, > 0
  OnlineMode online_mode = OnlineMode::safe;  // act online
  bool unpadded = false;        // the planes have no padding of columns; the view is a padded copy
  std::uint64_t bytes() const;  // in the file
  std::uint64_t memory_bytes() const;  // of the view
};

enum class LoadMode : std::uint8_t {
  automatic,  // map if this gives huge pages, otherwise read if memory suffices, otherwise map
  map,        // mmap and use in place
  read,       // read into a buffer of huge pages
};

struct LoadOptions {
  LoadMode mode = LoadMode::automatic;
  std::uint64_t memory_needed_beside = 0;  // for KV cache and scratch; used by `automatic`
  bool lock = false;                       // lock into memory (no swapping)
  // False: for headers and plans; tensors stored without padding have no contents, and codes alone
  // have an address.
  bool weights = true;
  // Called with the bytes loaded so far and in total while a file is read, or mapped as a whole,
  // from several threads but never concurrently.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = [](auto, auto) {};
};

class LeqReader {
 public:
  LeqReader(const std::filesystem::path& path, const LoadOptions& options);
  // Reads from memory, for tests and fuzzing; the bytes must outlive the reader.
  LeqReader(std::span<const std::byte> bytes, std::string name);
  ~LeqReader();
  LeqReader(LeqReader&&) noexcept;

  const std::string& name() const;
  std::uint64_t file_bytes() const;
  // Memory of an opened model: the file, with the padded copies instead of the tensors that it
  // stores without padding.
  std::uint64_t memory_bytes() const;
  bool mapped() const;  // false: read into memory
  // False once the file became shorter while it was mapped (base/mapping_watch.h).
  bool is_whole() const;
  // Identifies the file's content: the checksum of its JSON, which contains all other checksums.
  std::uint64_t fingerprint() const;
  std::uint32_t minor_version() const;  // the file's format version
  // The JSON without the tensor and blob tables: config, generation, provenance, ...
  const Json& metadata() const;
  const std::vector<StoredTensor>& tensors() const;
  const StoredTensor* find(std::string_view name) const;
  // Returns nullopt if there is no such blob. Throws Error if its checksum does not match.
  std::optional<std::span<const std::byte>> blob(std::string_view name) const;
  std::vector<std::string> blob_names() const;  // ordered by offset
  // Bytes in the file; not of padded copies' planes in a file that was read (LoadMode::read).
  std::span<const std::byte> bytes(const StoredPlane& plane) const;
  // A tensor's JSON entry, including keys that this version does not use. Throws Error if there is
  // no such tensor.
  const Json& entry(std::string_view name) const;

  // Verifies every checksum; `progress(done, total)` in bytes. Throws Error naming the first
  // mismatching tensor and plane (or blob), with both values.
  void verify(const std::function<void(std::uint64_t, std::uint64_t)>& progress) const;

 private:
  void require_checksum(const std::string& what, std::uint64_t offset, std::uint64_t expected,
                        std::uint64_t found) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leq
