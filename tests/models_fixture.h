// Models for tests: a trained checkpoint is quantized once into a temporary folder and kept for
// other tests that use it.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "quantize/run/quantize.h"

namespace leq::test {

// Returns the .leq file of `folder` in `type`, which is rewritten if this test program is newer.
// Concurrent tests wait for each other.
inline std::filesystem::path quantized(const std::filesystem::path& folder, const std::string& type,
                                       ActChoice act = ActChoice::automatic) {
  namespace fs = std::filesystem;
  const fs::path cache = fs::path(LEQ_BINARY_DIR) / "test-models";
  fs::create_directories(cache);
  const std::string kind =
      act == ActChoice::automatic ? type : type + "-act" + std::to_string(static_cast<int>(act));
  const auto path = cache / (folder.filename().string() + "-" + kind + ".leq");
  const auto built = fs::last_write_time(fs::canonical("/proc/self/exe"));
  const int lock = ::open(cache.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ::flock(lock, LOCK_EX);
  if (!fs::exists(path) || fs::last_write_time(path) < built) {
    QuantizeOptions options;
    options.type = type;
    options.act = act;
    options.threads = 1;
    quantize_checkpoint(folder, path, options);
  }
  ::close(lock);
  return path;
}

}  // namespace leq::test
