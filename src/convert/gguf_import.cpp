#include "convert/gguf_import.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "convert/checkpoint_names.h"
#include "convert/embedding_files.h"
#include "convert/gguf_config.h"
#include "convert/gguf_tokenizer.h"
#include "convert/hf_import.h"
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

// Names the types whose numbers no type of leq represents exactly; empty if there are none.
std::string rounded_note(const GgufSource& source) {
  std::set<std::string_view> names;
  for (const SourceTensor& tensor : source.tensors()) {
    const GgufType& type = source.type(tensor);
    const bool kept = type.floats || type.codes != nullptr || type.super != nullptr;
    if (tensor.shape.size() >= 2 && !kept) names.insert(type.name);
  }
  std::string list;
  for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  return list.empty() ? list : "rounded again, to the nearest type of leq: tensors of type " + list;
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
  const SourceTensor* dense = source->find("dense_2.weight");
  const SourceTensor* second = source->find("dense_3.weight");
  require((dense == nullptr) == (second == nullptr), path.string(),
          ": dense_2.weight or dense_3.weight is missing");
  if (dense != nullptr) {
    model.config.embedding_projection = true;
    model.tensors.push_back(
        embedding_projection({*source, *dense}, {*source, *second}, model.config.width));
  }
  if (!found.left_out.empty()) {
    model.notes.push_back("left out: " + std::to_string(found.left_out.size()) +
                          " layers that guess ahead; the model without them is run");
  }
  if (std::string note = left_out_note(*source, false); !note.empty()) {
    model.notes.push_back(std::move(note));
  }
  if (std::string note = rounded_note(*source); !note.empty()) {
    model.notes.push_back(std::move(note));
  }
  const GgufMetadata& metadata = source->metadata();
  if (metadata.text("tokenizer.ggml.model").value_or("none") != "none") {
    model.has_tokenizer = true;
    model.tokenizer = read_gguf_tokenizer(metadata);
    require(std::ssize(model.tokenizer.pieces) <= model.config.vocab, path.string(),
            ": the tokenizer has ", model.tokenizer.pieces.size(), " ids, the model only ",
            model.config.vocab);
    model.embedding = read_gguf_embedding(*source, model.tokenizer);
    if (model.tokenizer.add_eos) model.embedding.end = model.tokenizer.eos;
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

}  // namespace leq
