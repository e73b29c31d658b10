#include "quantize/run/quantize.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/version.h"
#include "convert/hf_tokenizer.h"
#include "convert/import.h"
#include "format/leq_writer.h"
#include "format/padding.h"
#include "model/linear_sites.h"
#include "quantize/run/blocks.h"
#include "quantize/run/quantize_tensor.h"
#include "quantize/run/steps.h"
#include "tensor/quant_scheme.h"
#include "tokenizer/tokenizer.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

// Methods that rewrite weights and then round them to the nearest codes.
constexpr const char* kSmoothQuant = "smoothquant";
constexpr const char* kAwq = "awq";

// The options with the plan and the fold that type, act, method and overrides stand for.
QuantizeOptions with_plan(QuantizeOptions options, const ModelConfig& config) {
  if (!options.plan) {
    PlanRequest request;
    request.type = require_scheme(options.type, Setting{"type"}.marked());
    request.act = options.act;
    request.overrides = options.overrides;
    if (options.method == kSmoothQuant || options.method == kAwq) {
      request.label = options.method;
    } else if (options.method != "absmax") {
      request.method = &require_method(options.method);
    }
    options.fold_plan = make_planner(request, config);
    if (options.block_type) request.overrides.push_back({R"(^layers\.)", *options.block_type});
    options.plan = make_planner(request, config);
  }
  if (!options.fold_plan) options.fold_plan = options.plan;
  if (!options.fold && options.method == kSmoothQuant) options.fold = smoothing_fold(std::nullopt);
  if (!options.fold && options.method == kAwq) options.fold = awq_fold();
  return options;
}

// Adds tensors to the file and accumulates totals for the result.
class Adder {
 public:
  Adder(LeqWriter& writer, QuantizeResult& result) : writer_(writer), result_(result) {}

  void add(const std::string& name, const Shape& shape, const QuantizedTensor& tensor) {
    const TensorRecord& record = tensor.record;
    const PackedWeight& weight = tensor.weight;
    writer_.add_tensor(name, shape, weight, facts_of(record));
    Json more = Json::object();
    if (record.loss) more[record.loss_of_hessian ? "loss" : "diagonal_loss"] = *record.loss;
    if (!record.note.empty()) more["note"] = record.note;
    if (!record.source.empty()) more["source"] = record.source;
    if (!record.fold.empty()) more["fold"] = record.fold;
    writer_.describe(name, more);
    bytes_ += file_bytes_of(weight.scheme, weight.act, weight.rows, weight.columns);
    if (record.error > result_.worst_error) {
      result_.worst_error = record.error;
      result_.worst_tensor = name;
    }
    if (record.loss.value_or(0) > result_.worst_loss) {
      result_.worst_loss = *record.loss;
      result_.worst_loss_tensor = name;
    }
  }
  std::uint64_t bytes() const { return bytes_; }  // of all planes

 private:
  LeqWriter& writer_;
  QuantizeResult& result_;
  std::uint64_t bytes_ = 0;
};

// Number of tensors from `first` on that are quantized together: as many as ranks divide at a time,
// or only those before the start of a finished block.
std::size_t run_of_tensors(std::span<const TensorInput> tensors, std::size_t first, int ranks,
                           bool finished) {
  const std::size_t most = ranks == 1 ? 1 : 4 * static_cast<std::size_t>(ranks);
  std::size_t count = 0;
  while (count < most && first + count < tensors.size() &&
         !(finished && tensors[first + count].name.starts_with("layers."))) {
    ++count;
  }
  return count;
}

// The tensor without its planes.
QuantizedTensor outline_of(const TensorInput& tensor, const TensorPlan& plan) {
  QuantizedTensor outline;
  outline.weight.scheme = plan.scheme;
  outline.weight.act = plan.act;
  outline.weight.rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
  outline.weight.columns = tensor.shape.back();
  outline.record.source = tensor.source_type;
  return outline;
}

// Writes all tensors: those of blocks from `blocks` if these were `finished` before, all others are
// read, quantized and written one by one. Holds at most one tensor in memory, or one finished
// block. With N ranks the leader, which alone has `adder` and `blocks`, holds 4 N tensors.
void write_tensors(Adder* adder, std::span<const TensorInput> tensors,
                   const QuantizeOptions& options, bool finished, const PartialRun* blocks,
                   const std::function<void(std::int64_t done)>& progress) {
  ThreadPool pool(options.threads);
  std::int64_t next_block = 0;
  for (std::size_t first = 0; first < tensors.size();) {
    const std::size_t count = run_of_tensors(tensors, first, options.ranks->size(), finished);
    const auto here = tensors.subspan(first, count);
    std::vector<std::int64_t> sizes;
    for (const TensorInput& tensor : here) {
      std::int64_t& numbers = sizes.emplace_back(1);
      for (const std::int64_t dimension : tensor.shape) numbers *= dimension;
    }
    DividedTensors divided(*options.ranks, sizes);
    for (std::size_t i = 0; i < count; ++i) {
      if (!divided.is_own(i)) continue;
      const TensorPlan plan = options.plan(here[i].name, here[i].role);
      divided.add(options.outline ? outline_of(here[i], plan)
                                  : quantize_input(here[i], plan, pool));
    }
    if (count > 0) divided.exchange(Receivers::leader, here[0].name);
    for (const TensorInput& tensor : here) {
      if (adder != nullptr) adder->add(tensor.name, tensor.shape, divided.take_next());
      progress(static_cast<std::int64_t>(++first));
    }
    if (count > 0) continue;
    if (blocks != nullptr && tensors[first].name.starts_with(layer_tensor(next_block, ""))) {
      // At the first tensor of a finished block, writes all its tensors, also those added by folds.
      for (const BlockTensor& stored : blocks->load(next_block)) {
        adder->add(stored.name, stored.shape, stored.quantized);
      }
      ++next_block;
    }
    progress(static_cast<std::int64_t>(++first));
  }
}

Json metadata_of(const ImportedModel& model, const QuantizeOptions& options,
                 const Json& calibration, const QuantizeResult& result) {
  Json metadata = Json::object();
  metadata["config"] = config_to_json(model.config);
  metadata["generation"] = generation_to_json(model.generation);
  metadata["embedding"] = embedding_to_json(model.embedding);
  metadata["chat_template"] = model.chat_template;
  metadata["tokenizer"] = model.has_tokenizer;
  const bool floats = require_scheme(options.type, Setting{"type"}.marked()).is_float();
  Json& provenance = metadata["provenance"];
  provenance = {{"tool", std::string("leq-quantize ").append(kVersion)},
                {"source", model.folder},
                {"checkpoint", model.description},
                {"type", options.type},
                {"method", floats ? "none" : options.method},
                {"act", act_choice_name(options.act)}};
  if (!options.outline) {
    provenance["worst_error"] = result.worst_error;
    provenance["worst_tensor"] = result.worst_tensor;
  }
  if (result.worst_loss > 0) {
    provenance["worst_loss"] = result.worst_loss;
    provenance["worst_loss_tensor"] = result.worst_loss_tensor;
  }
  if (options.fold) provenance["fold"] = options.fold->name;
  if (!calibration.empty()) provenance["calibration"] = calibration;
  return metadata;
}

// Writes the file, with the blocks that were quantized before if there are any.
QuantizeResult write_model(const ImportedModel& model, const fs::path& output,
                           const QuantizeOptions& options, LeqWriter* writer,
                           const std::optional<FinishedBlocks>& blocks) {
  QuantizeResult result;
  std::optional<Adder> adder;
  if (writer != nullptr) adder.emplace(*writer, result);
  const PartialRun* partial = blocks && blocks->partial ? &*blocks->partial : nullptr;
  write_tensors(adder ? &*adder : nullptr, model.tensors, options, blocks.has_value(), partial,
                [&](std::int64_t done) {
                  if (!blocks) options.progress("quantize", done, std::ssize(model.tensors), "");
                  require(!options.stop(), ErrorKind::interrupted, "interrupted; ", output.string(),
                          " is not written");
                });
  if (model.source != nullptr) model.source->finish();
  if (writer == nullptr) return result;
  for (const NamedBlob& table : tokenizer_tables(model.tokenizer)) {
    writer->add_blob(table.name, table.bytes);
  }
  for (const std::string& feature : required_features(model.config)) {
    writer->add_requirement(feature);
  }
  result.description = model.description;
  result.parameters = parameter_count(model.config);
  result.bits_per_weight =
      static_cast<double>(adder->bytes()) * 8.0 / static_cast<double>(result.parameters);
  result.file_bytes = writer->finish(
      metadata_of(model, options, blocks ? blocks->calibration : Json::array(), result));
  return result;
}

// Checks that all ranks have the same version, checkpoint and settings.
void agree(const ImportedModel& model, const QuantizeOptions& options) {
  if (options.ranks->size() == 1) return;
  require(options.max_ram == 0, Setting{"max_ram"},
          ": memory is not planned for several ranks; leave out ", Setting{"ranks"},
          " or this option");
  const std::string all = checkpoint_identity(model, options);
  require_agreement(
      *options.ranks,
      {{"version", kVersion}, {"the checkpoint and the settings (SHA-256)", sha256_hex(all)}});
}

}  // namespace

std::vector<CheckpointMethod> checkpoint_methods() {
  std::vector<CheckpointMethod> methods;
  for (const QuantMethod& method : quant_methods()) {
    methods.push_back(
        {std::string(method.name), std::string(method.summary), std::string(method.own_type)});
  }
  methods.push_back({kSmoothQuant, "sizes of input channels moved into the weights", "int8"});
  methods.push_back({kAwq, "channels that matter scaled up, groups clipped", "uint4-g128"});
  return methods;
}

LeastBytes least_bytes(const ImportedModel& model, const QuantizeOptions& options) {
  const TensorPlanner planner = with_plan(options, model.config).plan;
  LeastBytes least;
  for (const TensorSpec& spec : tensor_list(model.config)) {
    const TensorPlan plan = planner(spec.name, spec.role);
    const std::int64_t rows = spec.shape.size() == 2 ? spec.shape[0] : 1;
    const std::uint64_t sum = file_bytes_of(plan.scheme, plan.act, rows, spec.shape.back());
    least.all += sum;
    if (is_block_linear(spec.role)) least.block_linears += sum;
  }
  return least;
}

double rounding_seconds(const ImportedModel& model, const QuantizeOptions& options) {
  // Nanoseconds for each weight, measured on Zen 4: the search for the scales of a superblock or of
  // codes with a table takes most.
  constexpr double kPlain = 12, kNf4 = 30, kTable = 65, kSixBits = 130;
  const TensorPlanner planner = with_plan(options, model.config).plan;
  double nanoseconds = 0;
  ChosenCodes codes;
  for (const TensorInput& tensor : model.tensors) {
    const QuantScheme scheme = planner(tensor.name, tensor.role).scheme;
    const bool kept = !scheme.is_float() && tensor.shape.size() == 2 && tensor.read_codes &&
                      tensor.read_codes(scheme, 0, 1, codes);
    const double each = kept                                      ? kPlain
                        : scheme.kind == CodeKind::q6_k           ? kSixBits
                        : scheme.has_table() || scheme.is_super() ? kTable
                        : scheme.kind == CodeKind::nf4            ? kNf4
                                                                  : kPlain;
    double weights = 1;
    for (const std::int64_t size : tensor.shape) weights *= static_cast<double>(size);
    nanoseconds += weights * each;
  }
  return nanoseconds * 1e-9;
}

std::string checkpoint_identity(const ImportedModel& model, const QuantizeOptions& request) {
  const CalibrationRequest& text = request.calibration;
  const Json source = {{"text_sha256", sha256_hex(text.text)},
                       {"samples", text.samples},
                       {"length", text.length},
                       {"seed", text.seed}};
  const QuantizeOptions options = with_plan(request, model.config);
  return run_identity(model, options, Json::array({source}));
}

void keep_types(const ImportedModel& model, QuantizeOptions& options) {
  const bool chooses = options.method != "absmax" || options.fold || options.measure_keys;
  require(!chooses, ErrorKind::bad_setting, model.folder,
          ": its codes are carried over as they are, which leaves nothing to calibrate; name a ",
          Setting{"type"}, " or a recipe to quantize it again");
  const KeptTypes kept = kept_types(model);
  options.type = kept.most;
  // The user's overrides of single tensors come later in the list, so they take precedence.
  options.overrides.insert(options.overrides.begin(), kept.types.begin(), kept.types.end());
}

QuantizeResult quantize_imported(const ImportedModel& model, const fs::path& output,
                                 const QuantizeOptions& request) {
  agree(model, request);
  const QuantizeOptions options = with_plan(request, model.config);
  std::unique_ptr<LeqWriter> writer;
  if (options.ranks->leads()) writer = std::make_unique<LeqWriter>(output, options.outline);
  std::optional<FinishedBlocks> blocks;
  if (wants_calibration(model.config, options)) {
    blocks = quantize_blocks(model, options, output.string() + ".partial");
  }
  try {
    QuantizeResult result = write_model(model, output, options, writer.get(), blocks);
    if (blocks && blocks->partial) blocks->partial->remove();
    return result;
  } catch (const std::exception&) {
    if (blocks && blocks->partial) blocks->partial->report_kept();
    throw;
  }
}

namespace {

// The unquantized model, to which quantized models are compared: a .leq file without a name, so that
// its bytes are freed however the run ends, made in the folder OUTPUT.base, which only one run can
// hold at a time: the gate's result belongs to the output of the same run. Written on first use, in
// the dtype of the checkpoint, so that it needs no more disk than the checkpoint.
class BaseFile {
 public:
  BaseFile(const ImportedModel& model, const fs::path& output, const QuantizeOptions& options)
      : model_(model), folder_(output.string() + ".base"), options_(options) {}

  // The path by which this process can open it.
  fs::path path() {
    if (!file_) {
      QuantizeOptions exact;
      exact.type = dtype_name(model_.dtype);
      exact.threads = options_.threads;
      exact.stop = options_.stop;
      const fs::path named = folder_.path() / "base.leq";
      quantize_imported(model_, named, exact);
      file_.emplace(named);
    }
    return file_->path();
  }

 private:
  const ImportedModel& model_;
  WorkFolder folder_;
  const QuantizeOptions& options_;
  std::optional<NamelessFile> file_;
};

// All checks that can fail before the first weight is read.
void check_run(const ImportedModel& model, const fs::path& output, const QuantizeOptions& options) {
  const fs::path log = options.search ? options.search->search.options.log : fs::path();
  std::set<fs::path> seen;
  for (const fs::path& path : {output, log}) {
    if (path.empty()) continue;
    check_output(path);
    require_no_input(path, model.files);
    require_no_input(path, options.texts);
    std::error_code error;
    const bool is_new = seen.insert(fs::weakly_canonical(path, error)).second;
    require(error || is_new, path.string(), ": would be written twice; choose another name");
  }
  require(!options.search || !model.config.both_ways(), model.folder,
          ": makes embeddings, and a search measures the loss on text; choose a type or a recipe");
  if (options.search) check_search(model, options);
  if (!options.measure) return;
  const GateText& text = options.gate_text;
  require(text.text != options.calibration.text, text.name,
          ": this text was used for calibration, so KL on it does not show quality on other texts; "
          "choose another");
  if (model.config.context < kFewestGateTokens) return;
  const auto ids =
      Tokenizer(model.tokenizer).encode(text.text, {.parse_special = false, .add_bos = false});
  check_gate_text(text, std::ssize(ids), model.config.context);
}

// The time that work of these seconds takes here.
std::string time_on(const QuantizeOptions& options, double seconds) {
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  return expected_time(seconds, slowdown_by_others(threads));
}

// Sets the number of calibration windows and returns the number of gate windows.
std::int64_t fit_windows(const ImportedModel& model, const fs::path& output,
                         QuantizeOptions& options) {
  CalibrationRequest first = options.calibration;
  first.samples = kTimedWindows;
  const CalibrationData data =
      calibration_data(first, Tokenizer(model.tokenizer), model.config.context);
  const double seconds = measure_window_seconds(model, data, options);
  const auto kept =
      options.resume ? windows_of_interrupted_run(output.string() + ".partial") : std::nullopt;
  if (kept) {
    options.calibration.samples = *kept;
  } else {
    const ChoosingWork work = options.recipe == nullptr ? ChoosingWork() : options.recipe->work;
    const double choosing = choosing_seconds(model.config, work, seconds, data.length);
    const double budget = options.seconds.value_or(kCalibrationSeconds + choosing);
    WindowBounds bounds = options.seconds ? kBudgetedCalibrationWindows : kCalibrationWindows;
    if (!options.seconds && options.recipe != nullptr) bounds.most = options.recipe->most_windows;
    const std::int64_t windows = windows_within(budget - choosing, seconds, bounds);
    const double all = static_cast<double>(windows) * seconds + choosing;
    const std::string count = std::to_string(windows);
    options.calibration.samples = windows;
    options.say("calibration " + count + " windows of " + std::to_string(data.length) +
                " tokens, then folds and codes: " + time_on(options, all) +
                (all > budget ? ", the least that it takes" : "") + "; " +
                Setting{"samples"}.marked() + ' ' + count + " makes the same file on any machine");
  }
  return windows_within(kGateSeconds, 2 * seconds, kFittedGateWindows);
}

// Tells before a search how long it will take, from a few windows of its text.
void say_search_time(const ImportedModel& model, const QuantizeOptions& options) {
  const MixedSearch& search = options.search->search;
  CalibrationRequest text = options.calibration;
  text.text = search.text;
  text.samples = kTimedWindows;
  text.length = std::min(search.window, model.config.context);
  double seconds = 0;
  try {
    const CalibrationData data =
        calibration_data(text, Tokenizer(model.tokenizer), model.config.context);
    seconds = measure_window_seconds(model, data, options);
  } catch (const Error&) {
    return;  // the search itself says what is wrong with its text
  }
  const ChoosingWork work = options.recipe == nullptr ? ChoosingWork() : options.recipe->work;
  QuantizeOptions candidate_of = options;
  if (options.recipe == nullptr) candidate_of.type = "int8";
  const bool calibrates = wants_calibration(model.config, with_plan(candidate_of, model.config));
  const double windows = calibrates ? static_cast<double>(options.calibration.samples) : 0;
  const double candidate =
      windows * seconds + choosing_seconds(model.config, work, seconds, text.length);
  const double measuring = static_cast<double>(search.options.evaluations) *
                           static_cast<double>(search.windows) * seconds;
  options.say("search      " + std::to_string(kChoices) + " candidates" +
              (windows > 0 ? " of " + fixed(windows, 0) + " calibration windows" : "") + ", then " +
              std::to_string(search.options.evaluations) + " measurements of " +
              std::to_string(search.windows) + " windows: " +
              time_on(options, static_cast<double>(kChoices) * candidate + measuring) + "; " +
              Setting{"samples"}.marked() + " and " + Setting{"evaluations"}.marked() +
              " make it shorter");
}

// Broadcasts the leader's number of windows to all ranks.
void agree_on_windows(QuantizeOptions& options) {
  std::int64_t& samples = options.calibration.samples;
  std::vector<std::byte> bytes(sizeof samples);
  std::memcpy(bytes.data(), &samples, bytes.size());
  options.ranks->broadcast(bytes, "the number of windows");
  ensure(bytes.size() == sizeof samples, "windows in ", bytes.size(), " bytes");
  std::memcpy(&samples, bytes.data(), bytes.size());
}

std::optional<GateResult> measure(const ImportedModel& model, const fs::path& output,
                                  std::int64_t windows, const QuantizeOptions& options,
                                  BaseFile& base) {
  std::string obstacle = shortage(base_space(model, output));
  if (obstacle.empty() && model.config.context < kFewestGateTokens) {
    obstacle = "a context of " + std::to_string(model.config.context) + " positions is too short";
  }
  if (model.config.both_ways()) obstacle = "the model makes embeddings and no text";
  if (!obstacle.empty()) {
    options.say("gate        left out: " + obstacle);
    return std::nullopt;
  }
  const GateResult gate = compare_with_base(base.path(), output, windows, options);
  keep_gate(gate, options.gate_text, output);
  const auto* fit = options.search ? &options.search->search.fit : nullptr;
  const double max_kl = fit != nullptr && *fit ? (*fit)->max_kl : 0;
  options.say(max_kl > 0 ? gate_report(gate, max_kl) : gate_report(gate, options.recipe));
  return gate;
}

// The file is complete before its gate runs, so too little memory for the gate is not an error.
std::optional<GateResult> measure_written(const ImportedModel& model, const fs::path& output,
                                          std::int64_t windows, const QuantizeOptions& options,
                                          BaseFile& base) {
  const auto no_memory = [&](const std::string& why) {
    options.say("warning     " + why + ": " + output.string() +
                " is complete, but its KL divergence was not measured; run again with fewer other "
                "programs in memory, or measure it with leq-perplexity");
    return std::nullopt;
  };
  try {
    return measure(model, output, windows, options, base);
  } catch (const std::bad_alloc&) {
    return no_memory("out of memory");
  } catch (const std::length_error&) {
    return no_memory("out of memory");
  } catch (const Error& error) {
    require(!options.stop(), ErrorKind::interrupted, "interrupted; ", output.string(),
            " is complete, without its gate");
    if (error.kind() == ErrorKind::no_memory) return no_memory(std::string(error.marked()));
    throw;
  }
}

QuantizeResult lead(const ImportedModel& model, const fs::path& output, QuantizeOptions options) {
  for (const std::string& note : model.notes) options.say("checkpoint  " + note);
  check_run(model, output, options);
  BaseFile base(model, output, options);
  const std::int64_t gate_windows =
      options.fit_windows ? fit_windows(model, output, options) : kGateWindows;
  if (options.fit_windows) agree_on_windows(options);
  QuantizeResult result;
  if (options.search) {
    say_search_time(model, options);
    result.search = quantize_by_search(model, output, options, base.path());
    result.description = model.description;
    result.parameters = parameter_count(model.config);
    result.file_bytes = result.search->file_bytes;
  } else {
    result = quantize_imported(model, output, options);
  }
  options.written(result);
  if (options.measure) {
    result.gate = measure_written(model, output, gate_windows, options, base);
  }
  return result;
}

}  // namespace

void require_divisible(const QuantizeOptions& options, int ranks) {
  require(ranks == 1 || !options.search, Setting{"ranks"}, " ", ranks,
          ": a search is one rank's work; leave it out, or ", Setting{"search"});
}

QuantizeResult quantize_checkpoint(const fs::path& checkpoint, const fs::path& output,
                                   const QuantizeOptions& request) {
  require_divisible(request, request.ranks->size());
  QuantizeResult result;
  together(*request.ranks, [&] {
    QuantizeOptions options = request;
    const bool leads = options.ranks->leads();
    if (leads) check_output(output);
    ImportedModel model = import_checkpoint(checkpoint, options.arriving);
    if (options.fix_mistral_regex) fix_mistral_pattern(model.tokenizer);
    if (options.keeps_types) keep_types(model, options);
    if (leads) {
      result = lead(model, output, options);
    } else {
      if (options.fit_windows) agree_on_windows(options);
      result = quantize_imported(model, output, options);
    }
  });
  return result;
}

}  // namespace leq
