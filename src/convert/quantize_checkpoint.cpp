#include "convert/quantize_checkpoint.h"

#include <array>
#include <memory>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "convert/hf_import.h"
#include "model/linear_sites.h"
#include "quantize/pipeline/quantize_model.h"
#include "quantize/pipeline/run_identity.h"
#include "quantize/rewrites/fold.h"
#include "ranks/communicator.h"
#include "tokenizer/tokenizer.h"

namespace leq {
namespace {

// Methods that rewrite weights and then round them to the nearest codes.
constexpr const char* kSmoothQuant = "smoothquant";
constexpr const char* kAwq = "awq";

BlockOptions block_options(const CheckpointOptions& options, const ImportedModel& model,
                           const std::filesystem::path& output) {
  BlockOptions blocks{options};
  const bool rewrites = options.method == kSmoothQuant || options.method == kAwq;
  PlanRequest request;
  request.type = require_scheme(options.type, Setting{"type"}.marked());
  request.act = options.act;
  request.options = options.method_options;
  request.overrides = options.overrides;
  if (rewrites) {
    request.label = options.method;
  } else if (options.method != "absmax") {
    request.method = &require_method(options.method);
  }
  blocks.plan = options.plan ? options.plan : make_planner(request, model.config);
  if (!blocks.fold && options.method == kSmoothQuant) blocks.fold = smoothing_fold(std::nullopt);
  if (!blocks.fold && options.method == kAwq) blocks.fold = awq_fold();
  blocks.partial = output.string() + ".partial";
  return blocks;
}

Json metadata_of(const ImportedModel& model, const CheckpointOptions& options,
                 const BlockOptions& blocks, const CheckpointResult& result) {
  Json metadata = Json::object();
  metadata["config"] = config_to_json(written_config(model.config, blocks));
  metadata["generation"] = generation_to_json(model.generation);
  metadata["chat_template"] = model.chat_template;
  metadata["tokenizer"] = model.has_tokenizer;
  Json& provenance = metadata["provenance"];
  provenance = {
      {"tool", std::string("leq-quantize ").append(kVersion)},
      {"source", model.folder},
      {"checkpoint", model.description},
      {"type", options.type},
      {"method",
       require_scheme(options.type, Setting{"type"}.marked()).is_float() ? "none" : options.method},
      {"act", act_choice_name(options.act)},
      {"worst_error", result.worst_error},
      {"worst_tensor", result.worst_tensor}};
  if (result.worst_loss > 0) {
    provenance["worst_loss"] = result.worst_loss;
    provenance["worst_loss_tensor"] = result.worst_loss_tensor;
  }
  if (blocks.fold) provenance["fold"] = blocks.fold->name;
  if (blocks.fold_attention_biases) provenance["attention_biases"] = "folded";
  return metadata;
}

struct ModelToWrite {
  const ImportedModel& model;
  const CheckpointOptions& options;
  const BlockOptions& blocks;
  const WriteOptions& write;
};

// Writes the file, with blocks that were quantized before where there are.
CheckpointResult write_model(const ModelToWrite& what, LeqWriter* writer,
                             const std::filesystem::path& output, const BlocksResult* calibrated,
                             const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const ImportedModel& model = what.model;
  const auto report = [&](std::int64_t done, std::int64_t total) {
    if (!what.write.finished) progress(done, total);
    require(!what.options.stop(), ErrorKind::interrupted, "interrupted; ", output.string(),
            " is not written");
  };
  const QuantizeResult written = write_tensors(writer, model.tensors, what.write, report);
  CheckpointResult result;
  if (writer == nullptr) return result;
  for (const NamedBlob& table : tokenizer_tables(model.tokenizer)) {
    writer->add_blob(table.name, table.bytes);
  }
  for (const std::string& feature : required_features(written_config(model.config, what.blocks))) {
    writer->add_requirement(feature);
  }
  result.description = model.description;
  result.parameters = parameter_count(model.config);
  result.bits_per_weight =
      static_cast<double>(written.tensor_bytes) * 8.0 / static_cast<double>(result.parameters);
  result.worst_error = written.worst_error;
  result.worst_tensor = written.worst_tensor;
  result.worst_loss = written.worst_loss;
  result.worst_loss_tensor = written.worst_loss_tensor;
  Json metadata = metadata_of(model, what.options, what.blocks, result);
  if (calibrated != nullptr) metadata["provenance"]["calibration"] = calibrated->calibration;
  result.file_bytes = writer->finish(metadata);
  return result;
}

}  // namespace

void check_outputs(const ImportedModel& model, std::span<const std::filesystem::path> outputs,
                   std::span<const std::filesystem::path> inputs) {
  std::set<std::filesystem::path> seen;
  for (const std::filesystem::path& output : outputs) {
    if (output.empty()) continue;
    check_output(output);
    require_no_input(output, model.files);
    require_no_input(output, inputs);
    std::error_code error;
    const bool is_new = seen.insert(std::filesystem::weakly_canonical(output, error)).second;
    require(error || is_new, output.string(), ": would be written twice; choose another name");
  }
}

LeastBytes least_bytes(const ImportedModel& model, const CheckpointOptions& options) {
  const BlockOptions blocks = block_options(options, model, {});
  LeastBytes least;
  for (const TensorSpec& spec : tensor_list(model.config)) {
    const TensorPlan plan = blocks.plan(spec.name, spec.role);
    const std::int64_t rows = spec.shape.size() == 2 ? spec.shape[0] : 1;
    const PlaneBytes bytes = plane_bytes(plan.scheme, plan.act, rows, spec.shape.back());
    const std::uint64_t sum = bytes.codes + bytes.scales + bytes.zeros + bytes.sums;
    least.all += sum;
    if (is_block_linear(spec.role)) least.block_linears += sum;
  }
  return least;
}

std::vector<CheckpointMethod> checkpoint_methods() {
  std::vector<CheckpointMethod> methods;
  for (const QuantMethod& method : quant_methods()) {
    methods.push_back(
        {std::string(method.name), std::string(method.summary), std::string(method.own_type)});
  }
  methods.push_back({kSmoothQuant, "moves outliers of the inputs into the weights", "int8"});
  methods.push_back({kAwq, "channels that matter scaled up, groups clipped", "uint4-g128"});
  return methods;
}

std::string checkpoint_identity(const ImportedModel& model, const CheckpointOptions& options) {
  Json texts = Json::array();
  if (!options.load_stats.empty()) {
    texts.push_back({{"statistics", options.load_stats.string()}});
  }
  const CalibrationRequest& text = options.calibration;
  if (texts.empty()) {
    texts.push_back({{"text_sha256", sha256_hex(text.text)},
                     {"samples", text.samples},
                     {"length", text.length},
                     {"seed", text.seed}});
  }
  const BlockOptions blocks = block_options(options, model, {});
  return run_identity(written_config(model.config, blocks),
                      weights_checksum(model.config, model.tensors), blocks, texts);
}

CheckpointResult quantize_checkpoint(
    const std::filesystem::path& folder, const std::filesystem::path& output,
    const CheckpointOptions& options,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const ImportedModel model = import_hf(folder);
  if (options.ranks->leads()) {
    for (const std::string& note : model.notes) options.say("checkpoint  " + note);
  }
  return quantize_imported(model, output, options, progress);
}

namespace {

// Checks that all ranks have the same version, checkpoint and settings.
void agree(const ImportedModel& model, const CheckpointOptions& options) {
  if (options.ranks->size() == 1) return;
  require(options.max_ram == 0, Setting{"max_ram"},
          ": memory is not planned for several ranks; leave out ", Setting{"ranks"},
          " or this option");
  const std::string all = checkpoint_identity(model, options);
  require_agreement(
      *options.ranks,
      {{"version", kVersion}, {"the checkpoint and the settings (SHA-256)", sha256_hex(all)}});
}

CheckpointResult quantize_with(const ImportedModel& model, const std::filesystem::path& output,
                               const CheckpointOptions& options,
                               const std::function<void(std::int64_t, std::int64_t)>& progress) {
  agree(model, options);
  std::unique_ptr<LeqWriter> writer;
  if (options.ranks->leads()) {
    check_output(output);
    check_outputs(model, std::array{output, options.save_stats}, std::array{options.load_stats});
    writer = std::make_unique<LeqWriter>(output);
  }
  BlockOptions blocks = block_options(options, model, output);
  WriteOptions write = {.plan = blocks.plan, .threads = options.threads, .ranks = options.ranks};
  std::optional<BlocksResult> calibrated;
  std::optional<PartialRun> partial;
  if (wants_blocks(model.config, blocks)) {
    if (blocks.load_stats.empty()) {
      blocks.data =
          calibration_data(options.calibration, Tokenizer(model.tokenizer), model.config.context);
      if (!blocks.data.note.empty()) options.say("calibration " + blocks.data.note);
    }
    blocks.progress = progress;
    calibrated = quantize_blocks(model.config, model.tensors, blocks);
    partial = std::move(calibrated->partial);
  } else if (options.keep_blocks) {
    blocks.progress = progress;
    partial = quantize_blocks_plainly(model.config, model.tensors, blocks);
  }
  write.finished = calibrated || partial;
  write.blocks = partial ? &*partial : nullptr;
  CheckpointResult result;
  try {
    result = write_model({model, options, blocks, write}, writer.get(), output,
                         calibrated ? &*calibrated : nullptr, progress);
    if (partial) partial->remove();
  } catch (const std::exception&) {
    if (partial) partial->report_kept();
    throw;
  }
  return result;
}

}  // namespace

CheckpointResult quantize_imported(
    const ImportedModel& model, const std::filesystem::path& output,
    const CheckpointOptions& options,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  CheckpointResult result;
  together(*options.ranks, [&] { result = quantize_with(model, output, options, progress); });
  return result;
}

}  // namespace leq
