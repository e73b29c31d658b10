// The tensors of a GGUF file, or of all parts of a split one, as a TensorSource that decodes their
// blocks.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "format/gguf.h"
#include "format/tensor_source.h"

namespace leq {

// Whether a regular file begins with GGUF's magic number, regardless of its name.
bool begins_as_gguf_file(const std::filesystem::path& path);

class GgufSource : public TensorSource {
 public:
  // Opens `path` and, if it is the first of several parts (NAME-00001-of-00003.gguf), the other
  // parts in the same folder. Throws Error like parse_gguf, and naming a part that is missing or
  // belongs to another model, or the first part if `path` is a later one.
  explicit GgufSource(const std::filesystem::path& path);

  const GgufMetadata& metadata() const { return metadata_; }
  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  const GgufType& type(const SourceTensor& tensor) const {
    return *details_[place_of(tensor)].type;
  }
  // From now on reads this tensor in Hugging Face's row order, because llama.cpp stores the rotary
  // pairs (i, i + rows / 2) of each head in adjacent rows. Throws Error if the rows are not whole
  // heads with an even number of rows.
  void unpair_rows(std::string_view name, std::int64_t heads);

  void drop(const SourceTensor& tensor) const override;
  void read(const SourceTensor& tensor, std::int64_t first, std::span<float> out) const override;
  bool has_types() const override { return true; }
  std::optional<QuantScheme> own_scheme(const SourceTensor& tensor) const override;
  bool read_codes(const SourceTensor& tensor, const QuantScheme& scheme, std::int64_t first,
                  std::int64_t rows, ChosenCodes& out) const override;

 private:
  struct Details {
    const GgufType* type = nullptr;
    std::size_t file = 0;
    std::int64_t head_rows = 0;  // rows of a head with adjacent pairs; 0: not paired
  };
  GgufFile open_part(const std::filesystem::path& path);
  // `with_factors`: names of the tensors of type NVFP4, in all parts.
  void add_tensors(GgufFile& file, std::size_t part, const std::set<std::string>& with_factors);
  // The row in the file that corresponds to `row` in Hugging Face's order.
  std::int64_t stored_row(const SourceTensor& tensor, std::int64_t row) const;
  bool read_super(const SourceTensor& tensor, std::int64_t first, std::int64_t rows,
                  ChosenCodes& out) const;
  void read_blocks(const SourceTensor& tensor, std::int64_t first, std::span<float> out) const;
  // The f32 number that multiplies all values of a row: of NVFP4, otherwise 1.
  float factor_of(const SourceTensor& tensor, std::int64_t row) const;

  std::vector<MappedFile> files_;
  std::vector<std::filesystem::path> paths_;
  GgufMetadata metadata_;
  std::vector<Details> details_;  // [tensors]
  // Contents of "X.scale" beside an X.weight of type NVFP4: a number for each expert, or one.
  std::map<std::string, std::span<const std::byte>> factors_;  // by name of the weight
};

}  // namespace leq
