// OUTPUT.partial: the finished blocks of a calibrated run, so that an interrupted one goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "format/leq_reader.h"
#include "quantize/pipeline/quantize_tensor.h"

namespace leq {

// A tensor of a block, ready for the file.
struct BlockTensor {
  std::string name;  // "layers.3.q"
  Shape shape;
  QuantizedTensor quantized;
};

class PartialRun {
 public:
  // Goes on with the run in `folder` where `resume` and there is one; else starts anew, and what
  // lies in the folder from an earlier run is removed. `identity` says all that the blocks depend
  // on. Throws Error where the run in the folder was another one.
  PartialRun(std::filesystem::path folder, const std::string& identity, bool resume);

  // Of the run that was interrupted in `folder`; nullopt where there is none.
  static std::optional<std::string> identity_of(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  // Blocks [0, finished()) are there.
  std::int64_t finished() const { return finished_; }
  void save(const std::vector<BlockTensor>& block);  // block number finished()
  // A finished block, its checksums checked.
  std::vector<BlockTensor> load(std::int64_t layer) const;
  void remove();  // the folder, at the end

 private:
  std::filesystem::path file_of(std::int64_t layer) const;

  std::filesystem::path folder_;
  std::int64_t finished_ = 0;
};

}  // namespace leq
