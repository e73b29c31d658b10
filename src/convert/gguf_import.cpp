#include "convert/gguf_import.h"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/version.h"
#include "convert/gguf_config.h"
#include "convert/gguf_tokenizer.h"
#include "convert/hf_import.h"
#include "convert/import.h"
#include "format/gguf_source.h"

namespace leq {
namespace {

ModelConfig config_of(const GgufModel& model, const GgufSource& source) {
  return import_hf_config(model.config_json, source.metadata().source() + ": metadata");
}

void unpair_heads(GgufSource& source, const GgufModel& model, std::int64_t layers) {
  if (model.paired_heads == 0) return;
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    for (const char* kind : {".weight", ".bias"}) {
      source.unpair_rows(block + "attn_q" + kind, model.paired_heads);
      source.unpair_rows(block + "attn_k" + kind, model.paired_kv_heads);
    }
  }
}

// The type that has the most bytes, as "mostly Q4_K".
std::string main_type(const GgufSource& source) {
  std::map<std::string, std::size_t> bytes;
  for (const SourceTensor& tensor : source.tensors())
    bytes[tensor.file_dtype] += tensor.bytes.size();
  const auto most = std::ranges::max_element(
      bytes, [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "no tensors" : "mostly " + most->first;
}

// The common float type of the matrices, otherwise f32; vectors are f32 in every file.
DType matrix_dtype(const GgufSource& source) {
  const auto all = [&](DType dtype) {
    return std::ranges::all_of(source.tensors(), [&](const SourceTensor& tensor) {
      return tensor.shape.size() < 2 || tensor.dtype == dtype;
    });
  };
  return all(DType::f16) ? DType::f16 : all(DType::bf16) ? DType::bf16 : DType::f32;
}

}  // namespace

ModelConfig import_gguf_config(const std::filesystem::path& path) {
  const GgufSource source(path);
  return config_of(read_gguf_model(source), source);
}

ImportedModel import_gguf(const std::filesystem::path& path) {
  auto source = std::make_unique<GgufSource>(path);
  const GgufModel found = read_gguf_model(*source);
  ImportedModel model;
  model.config = config_of(found, *source);
  unpair_heads(*source, found, model.config.layer_count());
  model.tensors =
      import_tensors(*source, found.family, model.config, path.string(), found.left_out);
  if (!found.left_out.empty()) {
    model.notes.push_back("left out: " + std::to_string(found.left_out.size()) +
                          " layers that guess ahead; the model without them is run");
  }
  const GgufMetadata& metadata = source->metadata();
  if (metadata.text("tokenizer.ggml.model").value_or("none") != "none") {
    model.has_tokenizer = true;
    model.tokenizer = read_gguf_tokenizer(metadata);
    require(std::ssize(model.tokenizer.pieces) <= model.config.vocab, path.string(),
            ": the tokenizer has ", model.tokenizer.pieces.size(), " ids, the model only ",
            model.config.vocab);
    model.chat_template = read_gguf_template(metadata);
    model.generation = read_gguf_generation(metadata, model.tokenizer);
  }
  require(model.has_tokenizer, path.string(), ": the file has no tokenizer");
  model.tokenizer.source = path.filename().string();
  model.dtype = matrix_dtype(*source);
  model.description = std::string(found.family.name) + " in GGUF, " + main_type(*source);
  model.folder = path.filename().string();
  model.files = source->paths();
  model.source = std::move(source);
  return model;
}

namespace {
namespace fs = std::filesystem;

constexpr const char* kMemoryFolder = "/dev/shm";
// Raised where the same version of leq begins to convert otherwise: 2 since inputs of kept 8-bit
// codes are in groups of 32 columns.
constexpr const char* kRules = "rules 2";

// Writes the conversion of `gguf` to `output` atomically.
void convert(const fs::path& gguf, const fs::path& output, const ConversionEvents& events) {
  const ImportedModel model = import_checkpoint(gguf);
  CheckpointOptions checkpoint;
  checkpoint.stop = events.stop;
  keep_types(model, checkpoint);
  quantize_imported(model, output, checkpoint, events.progress);
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

std::string conversion_name(const fs::path& gguf) {
  const GgufSource source(gguf);
  std::string identity = std::string(kVersion) + '\n' + kRules;
  for (const fs::path& part : source.paths()) {
    std::error_code error;
    identity += '\n' + fs::canonical(part, error).string() + '\n' +
                std::to_string(fs::file_size(part, error)) + '\n' +
                std::to_string(fs::last_write_time(part, error).time_since_epoch().count());
  }
  return gguf.stem().string() + "-" + sha256_hex(identity).substr(0, 16) + ".leq";
}

fs::path convert_in_cache(const fs::path& gguf, const fs::path& cache,
                          const ConversionEvents& events) {
  const fs::path file = cache / conversion_name(gguf);
  if (file_exists(file)) return file;
  std::error_code error;
  fs::create_directories(cache, error);
  require(!error, ErrorKind::io, cache.string(), ": cannot be made (", error.message(),
          "); set XDG_CACHE_HOME to another folder, or use ", Setting{"cache"});
  events.begin(file);
  convert(gguf, file, events);
  return file;
}

NamelessFile convert_in_memory(const fs::path& gguf, const ConversionEvents& events) {
  std::error_code none;
  const fs::path folder =
      fs::is_directory(kMemoryFolder, none) ? fs::path(kMemoryFolder) : fs::temp_directory_path();
  static std::atomic<int> count = 0;  // several threads may convert the same file
  const fs::path file = folder / ("leq-" + std::to_string(::getpid()) + "-" +
                                  std::to_string(++count) + "-" + conversion_name(gguf));
  convert(gguf, file, events);
  return NamelessFile(file);
}

}  // namespace leq
