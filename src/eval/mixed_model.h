// A model whose units have different bits, put together without copying from files that hold all
// units at 2, 3, 4 and 8 bits: what the bit search measures, and the file that it writes.
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

// Units of each block: q, k and v together; o; gate and up together; down. Embedding, head, norms
// and positions belong to none and are taken from the file of 8 bits.
class MixedModel {
 public:
  // Files of 2, 3, 4 and 8 bits of one checkpoint with one set of folds (a scale that was folded
  // into a norm or into another linear must be the same in all). Throws Error naming files that
  // differ in configuration, tensors or the vectors outside the units.
  explicit MixedModel(const std::array<std::filesystem::path, kChoices>& candidates);

  // Names, kinds, layers, sizes, and as proxies the stored relative errors times the weights.
  const std::vector<SearchUnit>& units() const { return units_; }
  // Fills in entropy, kurtosis and outlier ratio from the weights of 8 bits; reads all of them.
  void measure_weights(ThreadPool& pool);
  std::uint64_t rest_bytes() const;  // tensors outside the units
  const Model& model() const { return *files_.back(); }
  std::string checksums() const;  // of all planes of all files, as one text

  // The views borrow from this object.
  Weights bind(const Assignment& assignment, Backend& backend) const;
  std::uint64_t bytes(const Assignment& assignment) const;  // of all tensors

  // Writes the mixed file with metadata of the file of 8 bits, where `provenance` replaces or adds
  // keys of "provenance" and `more` those beside it. Every checksum is verified on the way. Returns
  // the size of the file.
  std::uint64_t write(const std::filesystem::path& path, const Assignment& assignment,
                      const Json& provenance, const Json& more) const;

 private:
  void add_units();
  void require_alike() const;
  // The file that a tensor comes from, by the unit that it belongs to.
  const LeqReader& file_of(const Assignment& assignment, std::string_view name) const;

  std::vector<std::unique_ptr<Model>> files_;  // in the order of kSearchBits
  std::vector<SearchUnit> units_;
  std::map<std::string, std::size_t, std::less<>> unit_of_;  // tensor -> unit
};

}  // namespace leq
