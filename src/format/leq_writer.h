// Writes a .leq file tensor by tensor; the file appears complete under its name or not at all.
#pragma once

#include <filesystem>
#include <memory>

#include <span>
#include <string>

#include "base/json.h"
#include "format/leq_reader.h"
#include "format/tensor_source.h"
#include "tensor/pack.h"

namespace leq {

// What a file says of a tensor beside its numbers.
struct TensorFacts {
  std::string method = "none";  // who chose the codes; "none" for floats
  double error = 0;             // relative squared error of the weights
  float act_scale = 0;          // act tensor: the step between two codes of the inputs
  OnlineMode online_mode = OnlineMode::safe;  // act online
};

class LeqWriter {
 public:
  explicit LeqWriter(const std::filesystem::path& path);
  ~LeqWriter();

  // `shape` has 1 or 2 dimensions; weight.rows x weight.columns must match it (1 x n for a vector).
  void add_tensor(const std::string& name, const Shape& shape, const PackedWeight& weight,
                  const TensorFacts& facts);
  // Adds keys to what the file says of a tensor that was added; those of add_tensor stay.
  void describe(const std::string& name, const Json& more);
  // Copies a tensor as another file stores it, with all that its JSON says of it.
  void copy_tensor(const LeqReader& from, const StoredTensor& tensor);
  void add_blob(const std::string& name, std::span<const std::byte> bytes);
  // Names something that a reader must know to use the file: "rotation".
  void add_requirement(const std::string& feature);
  // Adds the JSON (metadata keys beside "tensors" and "blobs"), the preamble, syncs and renames.
  // Returns the size of the file.
  std::uint64_t finish(const Json& metadata);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leq
