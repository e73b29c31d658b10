// The unquantized model as a .leq file, for as long as something is measured against it.
#pragma once

#include <filesystem>

#include "convert/quantize_checkpoint.h"

namespace leq {

class BaseFile {
 public:
  // Written into the folder OUTPUT.base, in the type of the checkpoint's numbers, so that no more
  // disk is used than the checkpoint takes.
  BaseFile(const std::filesystem::path& checkpoint, const std::filesystem::path& output,
           const CheckpointOptions& options);
  ~BaseFile();  // removes file and folder
  BaseFile(const BaseFile&) = delete;
  BaseFile& operator=(const BaseFile&) = delete;

  std::filesystem::path path() const { return folder_ / "base.leq"; }

 private:
  explicit BaseFile(const std::filesystem::path& output);  // the folder, empty

  std::filesystem::path folder_;
};

}  // namespace leq
