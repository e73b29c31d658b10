// The unquantized model as a temporary .leq file, to which quantized models are compared.
#pragma once

#include <filesystem>

#include "base/file.h"
#include "quantize/run/quantize_checkpoint.h"

namespace leq {

class BaseFile {
 public:
  // Takes the folder OUTPUT.base, which only one job can hold at a time; nothing is written yet.
  // Uses `threads` and `stop` of the options. Both arguments must outlive the object. Throws Error
  // if another job writes the same output.
  BaseFile(const ImportedModel& model, const std::filesystem::path& output,
           const RunOptions& options);
  ~BaseFile();  // removes the file, if it was written
  BaseFile(const BaseFile&) = delete;
  BaseFile& operator=(const BaseFile&) = delete;

  // Path of the file. The first call writes it into the folder, in the dtype of the checkpoint, so
  // that it needs no more disk than the checkpoint.
  const std::filesystem::path& path();

 private:
  const ImportedModel& model_;
  WorkFolder folder_;  // OUTPUT.base
  std::filesystem::path path_;
  const RunOptions& options_;
  bool written_ = false;
};

}  // namespace leq
