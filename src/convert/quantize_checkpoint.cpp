#include "convert/quantize_checkpoint.h"

#include "base/error.h"
#include "base/json.h"
#include "base/version.h"
#include "convert/hf_import.h"
#include "tokenizer/tokenizer.h"

namespace leq {
namespace {

Json metadata_of(const ImportedModel& model, const CheckpointOptions& options,
                 const std::filesystem::path& folder, const CheckpointResult& result) {
  Json metadata = Json::object();
  metadata["config"] = config_to_json(model.config);
  metadata["generation"] = generation_to_json(model.generation);
  metadata["chat_template"] = model.chat_template;
  metadata["tokenizer"] = model.has_tokenizer;
  metadata["provenance"] = {
      {"tool", std::string("leq-quantize ") + kVersion},
      {"source", folder.filename().empty() ? folder.parent_path().filename().string()
                                           : folder.filename().string()},
      {"checkpoint", model.description},
      {"type", options.type},
      {"method", require_scheme(options.type, "--type").is_float() ? "none" : "absmax"},
      {"act", options.act == ActChoice::none ? "none" : "auto"},
      {"worst_error", result.worst_error},
      {"worst_tensor", result.worst_tensor}};
  return metadata;
}

}  // namespace

CheckpointResult quantize_checkpoint(
    const std::filesystem::path& folder, const std::filesystem::path& output,
    const CheckpointOptions& options,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const QuantScheme type = require_scheme(options.type, "--type");
  const ImportedModel model = import_hf(folder);
  LeqWriter writer(output);
  const QuantizeOptions quantize = {type, options.act, model.config.tied, options.threads};
  const QuantizeResult written = write_tensors(writer, model.tensors, quantize, progress);
  for (const NamedBlob& table : tokenizer_tables(model.tokenizer)) {
    writer.add_blob(table.name, table.bytes);
  }
  CheckpointResult result;
  result.description = model.description;
  result.parameters = parameter_count(model.config);
  result.bits_per_weight =
      static_cast<double>(written.tensor_bytes) * 8.0 / static_cast<double>(result.parameters);
  result.worst_error = written.worst_error;
  result.worst_tensor = written.worst_tensor;
  result.file_bytes = writer.finish(metadata_of(model, options, folder, result));
  return result;
}

}  // namespace leq
