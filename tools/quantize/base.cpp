#include "tools/quantize/base.h"

#include "tensor/dtype.h"

namespace leq {

BaseFile::BaseFile(const std::filesystem::path& output) : folder_(output) {
  folder_ += ".base";
  std::filesystem::create_directories(folder_);
}

// Delegates first, so that the folder goes away where the rest throws.
BaseFile::BaseFile(const std::filesystem::path& checkpoint, const std::filesystem::path& output,
                   const CheckpointOptions& options)
    : BaseFile(output) {
  const ImportedModel model = import_hf(checkpoint);
  CheckpointOptions exact;
  exact.type = dtype_name(model.dtype);
  exact.threads = options.threads;
  exact.stop = options.stop;
  quantize_imported(model, path(), exact, [](auto, auto) {});
}

BaseFile::~BaseFile() {
  std::error_code ignored;
  std::filesystem::remove(path(), ignored);
  std::filesystem::remove(folder_, ignored);  // where nothing else lies in it
}

}  // namespace leq
