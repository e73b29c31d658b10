// Opens models from files, GGUF files and memory.
#include "base/file.h"
#include "capi/handles.h"
#include "convert/gguf_conversion.h"
#include "format/gguf_source.h"

namespace leq::capi {
namespace {

LoadOptions load_options(const leq_open_options& options) {
  constexpr LoadMode kModes[] = {LoadMode::automatic, LoadMode::map, LoadMode::read};
  require_use(options.load >= 0 && options.load < std::ssize(kModes),
              "leq_open_options.load: expected LEQ_LOAD_AUTOMATIC, _MAP or _READ");
  LoadOptions load;
  load.mode = kModes[options.load];
  load.lock = options.lock != 0;
  return load;
}

std::shared_ptr<const OpenModel> open_gguf(const char* path, const leq_open_options& options) {
  bool stopped = false;
  ConversionEvents events;
  events.stop = [&] { return stopped; };
  events.progress = [&](std::int64_t done, std::int64_t total) {
    if (options.on_progress == nullptr) return;
    stopped = options.on_progress(options.user, "convert", done, total) != 0 || stopped;
  };
  const LoadOptions load = load_options(options);
  if (options.cache != nullptr && options.cache[0] == '\0') {
    const NamelessFile converted = convert_in_memory(path, events);
    return std::make_shared<const OpenModel>(converted.path(), load);
  }
  const auto cache =
      options.cache == nullptr ? conversion_cache() : std::filesystem::path(options.cache);
  return std::make_shared<const OpenModel>(convert_in_cache(path, cache, events).string(), load);
}

std::shared_ptr<const OpenModel> open_path(const char* path, const leq_open_options& options) {
  if (begins_as_gguf_file(path)) return open_gguf(path, options);
  return std::make_shared<const OpenModel>(path, load_options(options));
}

}  // namespace
}  // namespace leq::capi

using namespace leq;
using namespace leq::capi;

extern "C" {

leq_status leq_open(const char* path, const leq_open_options* options, leq_model** model,
                    leq_error* error) {
  if (model != nullptr) *model = nullptr;
  return guarded(error, [&] {
    require_use(path != nullptr, "path is NULL");
    require_use(model != nullptr, "model is NULL");
    *model = new leq_model(open_path(path, options_of(options, "leq_open_options")));
  });
}

leq_status leq_open_memory(const void* bytes, size_t size, const leq_open_options* options,
                           leq_model** model, leq_error* error) {
  if (model != nullptr) *model = nullptr;
  return guarded(error, [&] {
    require_use(bytes != nullptr, "bytes is NULL");
    require_use(model != nullptr, "model is NULL");
    const LoadOptions load = load_options(options_of(options, "leq_open_options"));
    const auto text = text_argument(static_cast<const char*>(bytes), size, "bytes");
    const NamelessFile copy(std::as_bytes(std::span(text)));
    *model = new leq_model(std::make_shared<const OpenModel>(copy.path(), load));
  });
}

void leq_close(leq_model* model) {
  if (model != nullptr && model->kind == HandleKind::model) delete model;
}

}  // extern "C"
