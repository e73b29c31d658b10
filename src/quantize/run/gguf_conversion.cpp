#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "convert/import.h"
#include "format/gguf_source.h"
#include "quantize/run/quantize.h"

namespace leq {
namespace {
namespace fs = std::filesystem;

constexpr const char* kMemoryFolder = "/dev/shm";
// Raised where the same version of leq begins to convert otherwise: 2 since inputs of kept 8-bit
// codes are in groups of 32 columns, 3 since codes with a table keep their size.
constexpr const char* kRules = "rules 3";

// Writes the conversion of `gguf` to `output` atomically.
void convert(const fs::path& gguf, const fs::path& output, const ConversionEvents& events) {
  const ImportedModel model = import_checkpoint(gguf);
  for (const std::string& note : model.notes) events.say(note);
  QuantizeOptions options;
  options.stop = events.stop;
  options.progress = [&](auto, std::int64_t done, std::int64_t total, const auto&) {
    events.progress(done, total);
  };
  keep_types(model, options);
  events.begin(least_bytes(model, options).all, rounding_seconds(model, options));
  quantize_imported(model, output, options);
}

// The file name of a GGUF file's conversion in a cache, different for each file, for each version
// of it, and for each change of how leq converts.
std::string conversion_name(const fs::path& gguf) {
  const GgufSource source(gguf);
  std::string identity = std::string(kVersion) + '\n' + kRules;
  for (const fs::path& part : source.paths()) {
    std::error_code error;
    const auto changed = fs::last_write_time(part, error).time_since_epoch();
    identity += '\n' + fs::canonical(part, error).string() + '\n' +
                std::to_string(fs::file_size(part, error)) + '\n' +
                std::to_string(static_cast<std::int64_t>(changed.count()));
  }
  return gguf.stem().string() + "-" + sha256_hex(identity).substr(0, 16) + ".leq";
}

}  // namespace

fs::path conversion_cache() {
  const auto folder = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path cache = folder("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "leq";
  const fs::path home = folder("HOME");
  require(home.is_absolute(), ErrorKind::io,
          "a GGUF file is converted into a cache folder: set XDG_CACHE_HOME or HOME, or use ",
          Setting{"cache"});
  return home / ".cache" / "leq";
}

fs::path conversion_of(const fs::path& gguf, const fs::path& cache) {
  return cache / conversion_name(gguf);
}

fs::path convert_in_cache(const fs::path& gguf, const fs::path& cache,
                          const ConversionEvents& events) {
  const fs::path file = conversion_of(gguf, cache);
  if (file_exists(file)) return file;
  std::error_code error;
  fs::create_directories(cache, error);
  require(!error, ErrorKind::io, cache.string(), ": cannot be made (", error.message(),
          "); set XDG_CACHE_HOME to another folder, or use ", Setting{"cache"});
  convert(gguf, file, events);
  return file;
}

namespace {

// The file `name` that `write` writes, in memory.
NamelessFile made_in_memory(const fs::path& name,
                            const std::function<void(const fs::path& file)>& write) {
  std::error_code none;
  const fs::path memory =
      fs::is_directory(kMemoryFolder, none) ? fs::path(kMemoryFolder) : fs::temp_directory_path();
  static std::atomic<int> count = 0;  // several threads may convert the same file
  const fs::path folder =
      memory / ("leq-" + std::to_string(::getpid()) + "-" + std::to_string(++count));
  fs::create_directory(folder, none);
  require(!none, ErrorKind::io, folder.string(), ": cannot be made (", none.message(), ")");
  const auto remove = [](const fs::path* made) {
    std::error_code ignored;
    fs::remove_all(*made, ignored);
  };
  const std::unique_ptr<const fs::path, decltype(remove)> removed(&folder, remove);
  const fs::path file = folder / name;  // the name in messages
  write(file);
  return NamelessFile(file);
}

}  // namespace

NamelessFile convert_in_memory(const fs::path& gguf, const ConversionEvents& events) {
  return made_in_memory(gguf.filename(),
                        [&](const fs::path& file) { convert(gguf, file, events); });
}

NamelessFile outline_of(const fs::path& checkpoint, const std::string& type) {
  const ImportedModel model = import_checkpoint(checkpoint);
  QuantizeOptions options;
  options.type = type;
  options.outline = true;
  if (begins_as_gguf_file(checkpoint) || holds_codes(checkpoint)) keep_types(model, options);
  return made_in_memory(model.folder,
                        [&](const fs::path& file) { quantize_imported(model, file, options); });
}

}  // namespace leq
