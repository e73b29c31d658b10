// A model whose units have different bit widths. It is composed without copying from files that
// hold all units at 2, 3, 4 and 8 bits. The bit search measures it and writes its result with it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "model/open_model.h"
#include "quantize/search/bit_search.h"

namespace leq {

// The units of a block are: q, k and v together; o; gate and up together; down. Embedding, head,
// norms and positions belong to no unit and are taken from the 8-bit file.
class MixedModel {
 public:
  // Opens files of 2, 3, 4 and 8 bits of one checkpoint with the same folds: scales that were
  // folded into a norm or another linear must be equal in all files. Throws Error naming files that
  // differ in configuration, tensors or the vectors outside the units.
  explicit MixedModel(const std::array<std::filesystem::path, kChoices>& candidates);

  // Names, kinds, layers and sizes of units. Proxies are stored relative error x parameters.
  const std::vector<SearchUnit>& units() const { return units_; }
  // Computes the entropy of the 8-bit weights, all of which are read.
  void measure_entropy(ThreadPool& pool);
  std::uint64_t rest_bytes() const;  // bytes of tensors outside the units
  const Model& model() const { return *files_.back(); }
  std::string checksums() const;  // of all planes in all files, as a text

  // The views point to memory of this object.
  Weights bind(const Assignment& assignment, Backend& backend) const;
  std::uint64_t bytes(const Assignment& assignment) const;  // bytes of all tensors

  // Writes the mixed file with the metadata of the 8-bit file. `provenance` replaces or adds keys
  // of "provenance", and `more` adds keys beside it. Verifies every checksum. Returns the size of
  // the file.
  std::uint64_t write(const std::filesystem::path& path, const Assignment& assignment,
                      const Json& provenance, const Json& more) const;

 private:
  void add_units();
  void require_alike() const;
  // The file that holds a tensor at the bit width that its unit has in the assignment.
  const LeqReader& file_of(const Assignment& assignment, std::string_view name) const;

  std::vector<std::unique_ptr<Model>> files_;  // in the order of kSearchBits
  std::vector<SearchUnit> units_;
  std::map<std::string, std::size_t, std::less<>> unit_of_;  // tensor name to unit
};

}  // namespace leq
