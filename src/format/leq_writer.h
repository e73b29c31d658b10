// Writes a .leq file tensor by tensor; the file appears complete under its name or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "format/leq_reader.h"
#include "format/tensor_source.h"
#include "tensor/pack.h"

namespace leq {

class LeqWriter {
 public:
  explicit LeqWriter(const std::filesystem::path& path);
  ~LeqWriter();

  // `shape` has 1 or 2 dimensions; weight.rows x weight.columns must match it (1 x n for a vector).
  void add_tensor(const std::string& name, const Shape& shape, const PackedWeight& weight,
                  const std::string& method, double error);
  // Copies a tensor as another file stores it, with all that its JSON says of it.
  void copy_tensor(const LeqReader& from, const StoredTensor& tensor);
  void add_blob(const std::string& name, std::span<const std::byte> bytes);
  // Adds the JSON (metadata keys beside "tensors" and "blobs"), the preamble, syncs and renames.
  // Returns the size of the file.
  std::uint64_t finish(const nlohmann::json& metadata);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leq
