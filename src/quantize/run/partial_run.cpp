#include "quantize/run/blocks.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "format/leq_layout.h"
#include "format/leq_writer.h"
#include "model/linear_sites.h"
#include "tokenizer/tokenizer.h"

namespace leq {
namespace {

constexpr std::uint64_t kMaxIdentityBytes = 64 << 20;
constexpr const char* kIdentityFile = "run.json";
constexpr std::int64_t kChecksumRows = 4;

PackedWeight packed_copy(const StoredTensor& tensor) {
  const WeightView& view = tensor.view;
  const PlaneBytes bytes = plane_bytes(view.scheme, view.act, view.rows, view.columns);
  PackedWeight weight;
  weight.scheme = view.scheme;
  weight.act = view.act;
  weight.rows = view.rows;
  weight.columns = view.columns;
  weight.scale_mul = view.scale_mul;
  const auto copy = [](std::vector<std::byte>& to, const void* from, std::uint64_t size) {
    if (size == 0) return;
    const auto* first = static_cast<const std::byte*>(from);
    to.assign(first, first + size);
  };
  copy(weight.codes, view.codes, bytes.codes);
  copy(weight.scales, view.scales, bytes.scales);
  copy(weight.zeros, view.zeros, bytes.zeros);
  copy(weight.sums, view.sums, bytes.sums);
  return weight;
}

Json record_json(const TensorRecord& record) {
  Json json = {
      {"note", record.note}, {"fold", record.fold}, {"loss_of_hessian", record.loss_of_hessian}};
  if (record.loss) json["loss"] = *record.loss;
  return json;
}

TensorRecord record_of(const StoredTensor& tensor, const Json& records, const std::string& where) {
  TensorRecord record;
  record.method = tensor.method;
  record.error = tensor.error;
  record.act_scale = tensor.act_scale;
  record.online_mode = tensor.online_mode;
  require(records.is_object() && records.contains(tensor.name), where, ": no record of tensor ",
          tensor.name);
  const Json& json = records[tensor.name];
  record.note = json_get<std::string>(json, "note", where);
  record.fold = json_get<std::string>(json, "fold", where);
  record.loss_of_hessian = json_get<bool>(json, "loss_of_hessian", where);
  if (json.contains("loss")) record.loss = json_get<double>(json, "loss", where);
  return record;
}

std::string combined(const std::vector<std::uint64_t>& checksums) {
  return checksum_text(checksum(std::as_bytes(std::span(checksums))));
}

// Of vectors and of a few rows, evenly spaced, of every other tensor: all are in reach, and a large
// checkpoint is not read twice.
std::string weights_checksum(std::span<const TensorInput> tensors) {
  std::vector<std::uint64_t> checksums;
  std::vector<float> values;
  for (const TensorInput& tensor : tensors) {
    const std::int64_t all = tensor.shape.front();
    const bool matrix = tensor.shape.size() == 2;
    const std::int64_t pieces = matrix ? std::min(kChecksumRows, all) : 1;
    values.resize(static_cast<std::size_t>(tensor.shape.back()));
    for (std::int64_t i = 0; i < pieces; ++i) {
      tensor.read(i * all / pieces, matrix ? 1 : all, values);
      checksums.push_back(checksum(std::as_bytes(std::span(values))));
    }
    if (tensor.drop) tensor.drop();
  }
  return combined(checksums);
}

std::string tokenizer_checksum(const TokenizerSpec& spec) {
  std::vector<std::uint64_t> checksums;
  for (const NamedBlob& table : tokenizer_tables(spec)) checksums.push_back(checksum(table.bytes));
  return combined(checksums);
}

}  // namespace

PartialRun::PartialRun(std::filesystem::path folder, const std::string& identity,
                       UnfinishedRun earlier, const Report& say)
    : work_(std::move(folder)), report_(say) {
  const auto identity_file = work_.path() / kIdentityFile;
  const std::string name = work_.path().string();
  const auto existing = work_.names();
  const bool has_run = std::ranges::find(existing, kIdentityFile) != existing.end();
  require(has_run || existing.empty(), name,
          ": is no folder of an interrupted run, but that is where one is "
          "kept; move it away");
  if (has_run && earlier == UnfinishedRun::resume &&
      read_file(identity_file, kMaxIdentityBytes) == identity) {
    while (file_exists(file_of(finished_))) ++finished_;
    return;
  }
  if (holds_work()) {
    require(earlier != UnfinishedRun::resume, name,
            ": holds what an interrupted run with another model, text or other flags has finished; "
            "give the same ones to go on with it, or ",
            Setting{"restart"}, " to remove it");
    require(earlier != UnfinishedRun::refuse, name,
            ": holds what an interrupted run has finished, which one rank alone can go on with: "
            "leave ",
            Setting{"ranks"}, " out, the file will be the same, or give ", Setting{"restart"},
            " to remove it");
    say("restarting  removed the partial results in " + name);
  }
  work_.clear();
  AtomicFile file(identity_file);
  file.append(std::as_bytes(std::span(identity)));
  file.commit();
}

PartialRun::~PartialRun() {
  try {
    if (folder().empty()) return;
    if (!holds_work()) work_.clear();
    report_kept();
  } catch (const std::exception&) {  // the folder stays, as after an interruption
  }
}

bool PartialRun::holds_work() const {
  return std::ranges::any_of(work_.names(), [](const auto& name) { return name != kIdentityFile; });
}

void PartialRun::report_kept() {
  if (std::exchange(reported_, true) || !holds_work()) return;
  report_("kept        what is finished stays in " + folder().string() +
          ": the same command goes on with it");
}

std::filesystem::path PartialRun::file_of(std::int64_t layer) const {
  char name[32];
  std::snprintf(name, sizeof name, "block-%05lld.leq", static_cast<long long>(layer));
  return work_.path() / name;
}

void PartialRun::save(const std::vector<BlockTensor>& block) {
  LeqWriter writer(file_of(finished_));
  Json records = Json::object();
  for (const BlockTensor& tensor : block) {
    const TensorRecord& record = tensor.quantized.record;
    writer.add_tensor(tensor.name, tensor.shape, tensor.quantized.weight, facts_of(record));
    records[tensor.name] = record_json(record);
  }
  writer.finish({{"records", std::move(records)}});
  ++finished_;
}

std::vector<BlockTensor> PartialRun::load(std::int64_t layer) const {
  const LeqReader reader(file_of(layer), {.mode = LoadMode::map});
  reader.verify([](std::uint64_t, std::uint64_t) {});
  const std::string& where = reader.name();
  require(reader.metadata().contains("records"), where, ": no records");
  std::vector<BlockTensor> block;
  for (const StoredTensor& tensor : reader.tensors()) {
    block.push_back(
        {tensor.name,
         tensor.shape,
         {packed_copy(tensor), record_of(tensor, reader.metadata()["records"], where)}});
  }
  return block;
}

void PartialRun::remove() { work_.clear(); }

std::string run_identity(const ImportedModel& model, const QuantizeOptions& options,
                         const Json& texts) {
  Json json = {{"config", config_to_json(model.config)},
               {"weights", weights_checksum(model.tensors)},
               {"tokenizer", tokenizer_checksum(model.tokenizer)},
               {"sequential", runs_sequentially(model.config, options)},
               {"max_static_error", options.max_static_error},
               {"fold", options.fold ? options.fold->name : ""},
               {"texts", texts}};
  for (const TensorSpec& spec : tensor_list(model.config)) {
    const TensorPlan plan = options.plan(spec.name, spec.role);
    json["plan"][spec.name] = {scheme_name(plan.scheme), act_name(plan.act),
                               online_mode_name(plan.online_mode),
                               plan.method != nullptr ? plan.method->name : "absmax", plan.label};
  }
  return json.dump();
}

std::optional<std::int64_t> windows_of_interrupted_run(const std::filesystem::path& folder) {
  const auto file = folder / kIdentityFile;
  if (!file_exists(file)) return std::nullopt;
  const std::string where = folder.string();
  // The identity of a search contains one per candidate; all have the same text.
  const Json kept = parse_json(read_file(file, kMaxIdentityBytes), where);
  const Json& run = kept.is_array() && !kept.empty() ? kept[0] : kept;
  if (!run.is_object() || !run.contains("texts") || !run["texts"].is_array()) return std::nullopt;
  if (run["texts"].size() != 1 || !run["texts"][0].contains("samples")) return std::nullopt;
  return json_get<std::int64_t>(run["texts"][0], "samples", where);
}

}  // namespace leq
