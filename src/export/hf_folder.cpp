#include "export/hf_folder.h"

#include "base/error.h"
#include "base/file.h"
#include "export/compressed_tensors.h"
#include "export/hf_config.h"
#include "export/hf_tensors.h"
#include "export/text_file.h"
#include "export/tokenizer_files.h"
#include "model/weights.h"

namespace leq {
namespace {

constexpr const char* kWeightsFile = "model.safetensors";

// A tied head with a smoothing vector of its own cannot be represented by a tied class.
void check_tied_head(const Model& model) {
  require(
      !model.config().tied || model.file().find(inv_smooth_tensor("token_embedding")) == nullptr,
      "token_embedding: a smoothing vector of a tied head has no place in transformers");
}

}  // namespace

ExportedFolder export_hf(const Model& model, HfWeights weights, ExportedInputs inputs,
                         const std::filesystem::path& folder) {
  const Family& family = hf_family_of(model.config());
  check_tied_head(model);
  Json config = hf_config(model, family);
  std::vector<SafeTensor> tensors;
  if (weights == HfWeights::compressed) {
    CompressedTensors compressed = compressed_tensors(model, family, inputs != ExportedInputs::f32);
    tensors = std::move(compressed.tensors);
    config["quantization_config"] = std::move(compressed.config);
  } else {
    tensors = hf_float_tensors(model, family);
  }
  ExportedFolder result;
  if (model.config().mtp) {
    result.notes.emplace_back("the head of multi-token prediction is left out");
  }
  std::vector<TextFile> files = {
      {"generation_config.json", hf_generation_config(model).dump(2) + "\n"}};
  append_tokenizer_files(model, TokenizerUse::transformers, files, result.notes);
  files.push_back({"config.json", config.dump(2) + "\n"});
  make_export_folder(folder);
  remove_exported(folder / "config.json");
  result.bytes = write_safetensors(folder / kWeightsFile, tensors);
  write_text_files(folder, files);
  result.files.emplace_back(kWeightsFile);
  for (const TextFile& file : files) {
    result.files.push_back(file.name);
    result.bytes += file.text.size();
  }
  return result;
}

}  // namespace leq
