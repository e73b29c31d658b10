#include "tools/common/model_file.h"

#include <iostream>
#include <optional>
#include <vector>

#include "base/progress.h"
#include "base/text.h"
#include "quantize/run/quantize.h"
#include "format/gguf_source.h"

namespace leq {

Option conversion_cache_option() {
  return {.name = "cache",
          .fallback = "true",
          .help =
              "a GGUF file is converted into memory alone, not into the cache folder "
              "($XDG_CACHE_HOME/leq, ~/.cache/leq), where the next start would find it",
          .group = "Model"};
}

int with_model_files(const Options& options, const std::function<int(const Options&)>& body) {
  Options resolved = options;
  std::vector<NamelessFile> in_memory;  // kept until the tool ends
  for (const char* name : {"model", "model-draft"}) {
    if (!options.declares(name)) continue;
    resolved.replace_texts(name, [&](const std::string& path) -> std::string {
      if (!begins_as_gguf_file(path)) return path;
      std::optional<Progress> line;
      ConversionEvents events;
      events.begin = [&](const std::filesystem::path& output) {
        std::cerr << "converting " << printable(path, 4096) << ", this once, to "
                  << printable(output.string(), 4096) << '\n';
      };
      events.progress = [&](std::int64_t done, std::int64_t total) {
        if (!line) line.emplace("converting", total, "tensors");
        line->update(done);
        if (done == total) line->clear();
      };
      if (!options.declares("cache") || options.flag("cache")) {
        return convert_in_cache(path, conversion_cache(), events).string();
      }
      in_memory.push_back(convert_in_memory(path, events));
      return in_memory.back().path();
    });
  }
  return body(resolved);
}

}  // namespace leq
