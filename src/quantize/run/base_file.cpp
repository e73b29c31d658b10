#include "quantize/run/base_file.h"

#include "tensor/quant_scheme.h"

namespace leq {

BaseFile::BaseFile(const ImportedModel& model, const std::filesystem::path& output,
                   const RunOptions& options)
    : model_(model),
      folder_(output.string() + ".base"),
      path_(folder_.path() / "base.leq"),
      options_(options) {}

const std::filesystem::path& BaseFile::path() {
  if (written_) return path_;
  CheckpointOptions exact;
  exact.type = dtype_name(model_.dtype);
  exact.threads = options_.threads;
  exact.stop = options_.stop;
  quantize_imported(model_, path_, exact, [](auto, auto) {});
  written_ = true;
  return path_;
}

BaseFile::~BaseFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace leq
