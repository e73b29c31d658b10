#include "tools/common/model_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/version.h"
#include "convert/import.h"
#include "format/gguf_source.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemoryFolder = "/dev/shm";

// Writes the conversion of `gguf` to `output`, complete or not at all.
void convert(const fs::path& gguf, const fs::path& output) {
  const ImportedModel model = import_checkpoint(gguf);
  CheckpointOptions checkpoint;
  keep_types(model, checkpoint);
  Progress line("converting", std::ssize(model.tensors), "tensors");
  quantize_imported(model, output, checkpoint,
                    [&](std::int64_t done, std::int64_t) { line.update(done); });
  line.clear();
}

// An open file without a name, which is gone when the program is.
class NamelessFile {
 public:
  explicit NamelessFile(const fs::path& file)
      : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    require(descriptor_ >= 0, ErrorKind::io, file.string(), ": cannot be opened again");
    std::error_code ignored;
    fs::remove(file, ignored);
  }
  ~NamelessFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  NamelessFile(NamelessFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  NamelessFile& operator=(NamelessFile&&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

NamelessFile convert_in_memory(const fs::path& gguf) {
  std::error_code none;
  const fs::path folder =
      fs::is_directory(kMemoryFolder, none) ? fs::path(kMemoryFolder) : fs::temp_directory_path();
  const fs::path file =
      folder / ("leq-" + std::to_string(::getpid()) + "-" + conversion_name(gguf));
  convert(gguf, file);
  return NamelessFile(file);
}

fs::path convert_in_cache(const fs::path& gguf) {
  const fs::path file = conversion_cache() / conversion_name(gguf);
  if (file_exists(file)) return file;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  require(!error, ErrorKind::io, file.parent_path().string(), ": cannot be made (", error.message(),
          "); set XDG_CACHE_HOME to another folder, or use --no-cache");
  std::cerr << "converting " << printable(gguf.string(), 4096) << ", this once, to "
            << printable(file.string(), 4096) << '\n';
  convert(gguf, file);
  return file;
}

}  // namespace

Option conversion_cache_option() {
  return {.name = "cache",
          .fallback = "true",
          .help =
              "a GGUF file is converted into memory alone, not into the cache folder "
              "($XDG_CACHE_HOME/leq, ~/.cache/leq), where the next start would find it",
          .group = "Model"};
}

fs::path conversion_cache() {
  const auto folder = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path cache = folder("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "leq";
  const fs::path home = folder("HOME");
  require(home.is_absolute(), ErrorKind::io,
          "a GGUF file is converted into a cache folder: set XDG_CACHE_HOME or HOME, or use "
          "--no-cache");
  return home / ".cache" / "leq";
}

std::string conversion_name(const fs::path& gguf) {
  const GgufSource source(gguf);
  std::string identity = kVersion;
  for (const fs::path& part : source.paths()) {
    std::error_code error;
    identity += '\n' + fs::canonical(part, error).string() + '\n' +
                std::to_string(fs::file_size(part, error)) + '\n' +
                std::to_string(fs::last_write_time(part, error).time_since_epoch().count());
  }
  return gguf.stem().string() + "-" + sha256_hex(identity).substr(0, 16) + ".leq";
}

int with_model_files(const Options& options, const std::function<int(const Options&)>& body) {
  Options resolved = options;
  std::vector<NamelessFile> in_memory;  // until the tool ends
  for (const char* name : {"model", "model-draft"}) {
    if (!options.declares(name)) continue;
    resolved.replace_texts(name, [&](const std::string& path) -> std::string {
      if (!begins_as_gguf_file(path)) return path;
      if (!options.declares("cache") || options.flag("cache")) {
        return convert_in_cache(path).string();
      }
      in_memory.push_back(convert_in_memory(path));
      return in_memory.back().path();
    });
  }
  return body(resolved);
}

}  // namespace leq
