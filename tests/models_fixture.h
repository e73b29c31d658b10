// Models for tests: a trained checkpoint quantized once into a folder of temporary files and kept
// for the next test that asks for it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "convert/quantize_checkpoint.h"

namespace leq::test {

// The .leq file of `folder` in `type`, written if it is not there. Concurrent tests may race: each
// writes its own complete file and the last rename wins.
inline std::filesystem::path quantized(const std::filesystem::path& folder,
                                       const std::string& type) {
  const auto cache = std::filesystem::temp_directory_path() /
                     ("leq_test_models_" + std::to_string(::getuid()) + "_" LEQ_BUILD_ID);
  std::filesystem::create_directories(cache);
  const auto path = cache / (folder.filename().string() + "-" + type + ".leq");
  if (!std::filesystem::exists(path)) {
    CheckpointOptions options;
    options.type = type;
    options.threads = 1;
    quantize_checkpoint(folder, path, options, [](auto, auto) {});
  }
  return path;
}

}  // namespace leq::test
