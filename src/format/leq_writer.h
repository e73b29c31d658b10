// Writes a .leq file tensor by tensor; the file appears under its name only when it is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "format/leq_reader.h"
#include "format/tensor_source.h"
#include "tensor/pack.h"

namespace leq {

// Metadata that a file stores for a tensor in addition to its values.
struct TensorFacts {
  std::string method = "none";  // how the codes were chosen; "none" for floats
  double error = 0;             // relative squared error of the weights
  float act_scale = 0;          // act tensor: the step between two codes of the inputs
  OnlineMode online_mode = OnlineMode::safe;  // act online
};

class LeqWriter {
 public:
  // `outline`: tensors have their places, and holes for content: for plans and listings.
  explicit LeqWriter(const std::filesystem::path& path, bool outline = false);

  // `shape` has 1 or 2 dimensions; weight.rows x weight.columns must match it (1 x n for a vector).
  // The weight of an outline has no planes.
  void add_tensor(const std::string& name, const Shape& shape, const PackedWeight& weight,
                  const TensorFacts& facts);
  // Adds keys to the metadata of a tensor that was added earlier; existing keys are kept.
  void describe(const std::string& name, const Json& more);
  // Copies a tensor as stored in another file, with all of its metadata.
  void copy_tensor(const LeqReader& from, const StoredTensor& tensor);
  void add_blob(const std::string& name, std::span<const std::byte> bytes);
  // Lists a feature that a reader must support to use the file, such as "experts".
  void add_requirement(const std::string& feature);
  // Writes the JSON (metadata keys in addition to "tensors" and "blobs") and the preamble, syncs
  // and renames the file. Returns its size.
  std::uint64_t finish(const Json& metadata);

 private:
  // Adds a tensor whose planes are as the file stores them.
  void add_planes(const std::string& name, const Shape& shape, const PackedWeight& weight,
                  const TensorFacts& facts, bool unpadded);
  void mark_unpadded(Json& entry);
  void align();
  // Appends the bytes at the next multiple of 64; returns the JSON entry of their byte range.
  Json append(std::span<const std::byte> bytes);

  std::string name_;
  AtomicFile file_;
  bool outline_;
  Json tensors_ = Json::object(), blobs_ = Json::object(), requirements_ = Json::array();
  std::uint32_t minor_version_ = 0;
};

// Writes a .leq file from stored tensors of other files without recomputing them; each checksum is
// verified during the copy.

// The file from which a tensor of the copy is read; it must contain a tensor of that name.
using CopySource = std::function<const LeqReader&(const std::string& name)>;

// Writes `path`, which may be the file that `like` has open. The copy has the tensors of `like` in
// its order, each read from `source`, the blobs and requirements of `like`, and its metadata after
// `edit`. Returns the size of the file.
std::uint64_t write_copy(const std::filesystem::path& path, const LeqReader& like,
                         const CopySource& source, const std::function<void(Json& metadata)>& edit);

}  // namespace leq
