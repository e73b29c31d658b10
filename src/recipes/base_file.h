// The unquantized model as a .leq file, for as long as something is measured against it.
#pragma once

#include <filesystem>

#include "convert/quantize_checkpoint.h"

namespace leq {

class BaseFile {
 public:
  // Beside `output`; nothing is written yet. Of the options threads and stop are used. Both must
  // outlive the object.
  BaseFile(const ImportedModel& model, const std::filesystem::path& output,
           const RunOptions& options);
  ~BaseFile();  // removes what was written
  BaseFile(const BaseFile&) = delete;
  BaseFile& operator=(const BaseFile&) = delete;

  // Written into the folder OUTPUT.base at the first call, in the type of the checkpoint's numbers,
  // so that no more disk is used than the checkpoint takes.
  const std::filesystem::path& path();

 private:
  const ImportedModel& model_;
  std::filesystem::path folder_;  // OUTPUT.base
  std::filesystem::path path_;
  const RunOptions& options_;
  bool written_ = false;
};

}  // namespace leq
