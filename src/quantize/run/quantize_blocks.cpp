#include "quantize/run/quantize_blocks.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "backend/cpu/workers.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_layout.h"
#include "model/weights.h"
#include "quantize/run/block_run.h"
#include "quantize/run/block_work.h"
#include "quantize/run/calibration_memory.h"
#include "quantize/run/divided_tensors.h"
#include "quantize/run/run_identity.h"
#include "quantize/run/statistics_file.h"

namespace leq {
namespace {

constexpr std::int64_t kChecksumRows = 16;

// The statistics and data that the plans of all block linears require together.
struct Demands {
  Needs needs = Needs::nothing;
  bool teacher_inputs = false;
  bool adds_biases = false;
};

Demands demands_of(const ModelConfig& config, const TensorPlanner& plan) {
  Demands all;
  for (const TensorSpec& spec : tensor_list(config)) {
    if (!is_block_linear(spec.role)) continue;
    const TensorPlan tensor = plan(spec.name, spec.role);
    if (tensor.act == ActKind::tensor) all.needs = std::max(all.needs, Needs::diagonal);
    if (tensor.method == nullptr) continue;
    all.needs = std::max(all.needs, tensor.method->needs);
    all.teacher_inputs = all.teacher_inputs || tensor.method->teacher_inputs;
    all.adds_biases = all.adds_biases || tensor.method->adds_biases;
  }
  return all;
}

void report_resumed(const PartialRun& partial, const ModelConfig& config,
                    const BlockOptions& options) {
  if (partial.finished() == 0) return;
  options.say("resume      " + std::to_string(partial.finished()) + " of " +
              std::to_string(config.layer_count()) + " blocks are done");
}

class Pipeline {
 public:
  Pipeline(const ModelConfig& config, std::span<const TensorInput> tensors,
           const BlockOptions& options)
      : source_(config, tensors, options.fold_attention_biases),
        config_(written_config(config, options)),
        options_(options),
        workers_(options.threads),
        weights_(weights_checksum(config, tensors)) {
    loaded_ = !options.load_stats.empty();
    needs_ = demands_of(config_, options.plan).needs;
    sequential_ = runs_sequentially(config_, options);
    const bool of_fold = options.fold && options.fold->wants_hessian;
    once_ = {of_fold || (needs_ == Needs::hessian && !sequential_), kSampleTokens};
  }

  std::optional<PartialRun> run();
  Json calibration() const;

 private:
  StatisticsIdentity identity_of_data() const;
  void open_statistics();
  CalibrationMemory plan_memory();
  void load_finished_block(std::int64_t layer, const PartialRun& partial);
  BlockTensors load(std::int64_t layer) const;
  BlockTensors load_finished(const std::vector<BlockTensor>& tensors, std::int64_t layer);
  Statistics statistics_once(std::int64_t layer, const BlockTensors& block);
  void save(std::int64_t layer, const Statistics& statistics);
  void note_experts(const BlockWork& work);
  void count_acts(const std::vector<BlockTensor>& block);
  void report() const;
  std::vector<BlockTensor> quantize_block(std::int64_t layer);
  void quantize_sequentially(BlockWork& work);
  void quantize_sites(BlockWork& work, const Statistics& statistics);
  Statistics pass(std::int64_t layer, BlockRun& run, const Pass& pass);
  void quantize_all(PartialRun* partial);
  void run_with(PartialRun* partial, const CalibrationMemory& memory);
  std::filesystem::path hidden_file(const PartialRun* partial) const;
  void step(std::int64_t units);

  const BlockSource source_;
  const ModelConfig config_;  // configuration of the written blocks
  const BlockOptions& options_;
  Workers workers_;
  Needs needs_ = Needs::nothing;
  std::string weights_;  // checksum of the checkpoint's weights
  bool loaded_ = false;
  bool sequential_ = false;
  StatisticsWanted once_;  // statistics to gather from the unquantized block
  std::unique_ptr<StatisticsReader> reader_;
  std::unique_ptr<StatisticsWriter> writer_;
  std::unique_ptr<HiddenStates> hidden_;
  std::int64_t linears_ = 0, linears_by_token_ = 0;  // linears with act tensor, and those by token
  HalvesDifference halves_;
  ExpertTokens experts_;               // summed over all blocks
  std::int64_t done_ = 0, total_ = 0;  // progress: work done and total
};

void Pipeline::step(std::int64_t units) {
  done_ += units;
  options_.progress(std::min(done_, total_), total_);
  require(!options_.stop(), ErrorKind::interrupted, "interrupted");
}

StatisticsIdentity Pipeline::identity_of_data() const {
  const CalibrationData& data = options_.data;
  return {source_.config(),
          weights_,
          std::filesystem::path(data.source).filename().string(),
          data.text_sha256,
          std::ssize(data.windows),
          data.length,
          data.seed,
          once_.hessian};
}

Json Pipeline::calibration() const {
  if (!loaded_) return Json::array({calibration_json(identity_of_data())});
  return Json::array({calibration_json(reader_->identity())});
}

void Pipeline::open_statistics() {
  if (loaded_) {
    reader_ = std::make_unique<StatisticsReader>(options_.load_stats, source_.config(), weights_,
                                                 once_.hessian);
  }
  if (options_.save_stats.empty() || !options_.ranks->leads()) return;
  writer_ = std::make_unique<StatisticsWriter>(options_.save_stats, identity_of_data());
}

CalibrationMemory Pipeline::plan_memory() {
  CalibrationShape shape;
  shape.windows = std::ssize(options_.data.windows);
  shape.length = options_.data.length;
  shape.hidden = !loaded_;
  shape.together = !sequential_ || options_.fold.has_value();
  shape.hessian_together = once_.hessian;
  shape.hessian_of_one = needs_ == Needs::hessian;
  shape.sample_tokens = kSampleTokens;
  const CalibrationMemory memory =
      plan_calibration(config_, shape, workers_.backend->layout(), options_.max_ram);
  options_.say("memory      " + describe(memory));
  total_ = 0;
  for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    const std::vector<LinearSite> sites = linear_sites(config_, layer);
    const std::int64_t stages = std::ssize(stages_of(sites)) + 1;
    const std::int64_t passes = loaded_ ? 0 : sequential_ ? stages + (options_.fold ? 1 : 0) : 1;
    std::int64_t linears = 0;
    for (const LinearSite& site : sites) linears += std::ssize(site.coded_weights());
    total_ += passes * shape.windows + linears * std::max<std::int64_t>(1, shape.windows / 4);
  }
  return memory;
}

BlockTensors Pipeline::load(std::int64_t layer) const {
  BlockTensors block = source_.load(layer);
  for (const TensorSpec& spec : layer_tensors(config_, layer)) {  // biases to be corrected
    if (!block.has(spec.name)) block.parts[spec.name] = matrix_of(spec.shape);
  }
  return block;
}

BlockTensors Pipeline::load_finished(const std::vector<BlockTensor>& tensors, std::int64_t layer) {
  BlockTensors block;
  const std::size_t front = layer_tensor(layer, "").size();
  for (const BlockTensor& tensor : tensors) {
    Matrix matrix = matrix_of(tensor.shape);
    unpack_all(tensor.quantized.weight.view(), matrix.values, workers_.pool);
    block.parts[tensor.name.substr(front)] = std::move(matrix);
  }
  return block;
}

Statistics Pipeline::pass(std::int64_t layer, BlockRun& run, const Pass& pass) {
  const PassContext context = {run,
                               *hidden_,
                               *workers_.backend,
                               workers_.pool,
                               "layers." + std::to_string(layer),
                               [this] { step(1); },
                               *options_.ranks};
  PassResult result = run_pass(context, pass);
  halves_.absmax = std::max(halves_.absmax, result.halves.absmax);
  halves_.square_mean = std::max(halves_.square_mean, result.halves.square_mean);
  return std::move(result.statistics);
}

Statistics Pipeline::statistics_once(std::int64_t layer, const BlockTensors& block) {
  Statistics statistics;
  if (loaded_) {
    const std::vector<LinearSite> sites = linear_sites(config_, layer);
    for (std::size_t i = 0; i < sites.size(); ++i) {
      statistics[i] = reader_->read(layer, i);
    }
    return statistics;
  }
  BlockRun run(config_, layer, block, *workers_.backend, options_.data.length);
  const Pass once = {.mlp = sequential_ ? Extent::inputs : Extent::whole,
                     .sites = all_sites(run.sites()),
                     .wanted = once_,
                     .keep = !sequential_};
  statistics = pass(layer, run, once);
  save(layer, statistics);
  return statistics;
}

void Pipeline::save(std::int64_t layer, const Statistics& statistics) {
  if (!writer_) return;
  for (const auto& [site, of_input] : statistics) writer_->add(layer, site, of_input);
}

// Skips a block that an interrupted run has finished: only advances the hidden states through it.
void Pipeline::load_finished_block(std::int64_t layer, const PartialRun& partial) {
  if (loaded_) return;
  const BlockTensors block = sequential_ ? load_finished(partial.load(layer), layer) : load(layer);
  BlockRun run(config_, layer, block, *workers_.backend, options_.data.length);
  Pass whole;
  if (writer_) {
    whole.sites = all_sites(run.sites());
    whole.wanted = once_;
  }
  save(layer, pass(layer, run, whole));
}

void Pipeline::count_acts(const std::vector<BlockTensor>& block) {
  for (const BlockTensor& tensor : block) {
    const ActKind act = tensor.quantized.weight.act;
    if (act != ActKind::tensor && act != ActKind::row) continue;
    ++linears_;
    if (act == ActKind::row) ++linears_by_token_;
  }
}

// Ranks divide the rows of each linear or, if the method does not allow that, divide the linears.
// Every rank receives all quantized linears.
void Pipeline::quantize_sites(BlockWork& work, const Statistics& statistics) {
  struct Part {
    std::string name;
    const InputStatistics& inputs;
  };
  const std::int64_t units = std::max<std::int64_t>(1, std::ssize(options_.data.windows) / 4);
  std::vector<Part> whole;  // linears that a single rank quantizes
  std::vector<std::int64_t> sizes;
  for (const auto& [site, inputs] : statistics) work.check_inputs_scale(site, inputs);
  for (const auto& [site, inputs] : statistics) {
    for (const std::string& part : parts_of(work.sites()[site])) {
      if (options_.ranks->size() > 1 && !work.divides_rows(part)) {
        whole.push_back({part, inputs});
        sizes.push_back(work.size_of(part));
        continue;
      }
      work.keep(part, work.quantize(part, inputs), inputs);
      step(units);
    }
  }
  if (whole.empty()) return;
  DividedTensors divided(*options_.ranks, sizes);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!divided.is_own(i)) continue;
    divided.add(work.quantize(whole[i].name, whole[i].inputs));
    step(units);
  }
  divided.exchange(Receivers::all, "linears of layers." + std::to_string(work.layer()));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    work.keep(whole[i].name, divided.take_next(), whole[i].inputs);
    if (!divided.is_own(i)) step(units);
  }
}

void Pipeline::quantize_sequentially(BlockWork& work) {
  constexpr StatisticsWanted kWanted = {true, kSampleTokens};
  const std::int64_t layer = work.layer();
  BlockRun run(config_, layer, work.tensors(), *workers_.backend, options_.data.length);
  bool past_mixer = false;
  for (const std::vector<std::size_t>& sites : stages_of(run.sites())) {
    Pass stage = {Extent::inputs, Extent::none, sites, kWanted, false};
    if (run.sites()[sites.front()].sublayer == Sublayer::mlp) {
      stage.mixer = past_mixer ? Extent::none : Extent::whole;  // none: the mixer has been run
      stage.mlp = Extent::inputs;
      stage.keep = !past_mixer;
      past_mixer = true;
    }
    quantize_sites(work, pass(layer, run, stage));
  }
  pass(layer, run, {.mixer = Extent::none});
}

std::vector<BlockTensor> Pipeline::quantize_block(std::int64_t layer) {
  BlockWork work({config_, options_, workers_.pool, *options_.ranks, sequential_}, layer,
                 load(layer));
  Statistics statistics;
  if (!sequential_ || options_.fold) statistics = statistics_once(layer, work.tensors());
  if (options_.fold) work.fold(statistics);
  if (sequential_) {
    statistics.clear();
    quantize_sequentially(work);
  } else {
    quantize_sites(work, statistics);
  }
  note_experts(work);
  return work.finish();
}

void Pipeline::note_experts(const BlockWork& work) {
  const ExpertTokens& seen = work.expert_tokens();
  if (seen.experts == 0) return;
  if (experts_.experts == 0 || seen.fewest < experts_.fewest) {
    experts_.fewest = seen.fewest;
    experts_.site = seen.site;
  }
  experts_.experts += seen.experts;
  experts_.rare += seen.rare;
}

// `partial` is set on the leader and null on other ranks, because several ranks cannot resume.
void Pipeline::quantize_all(PartialRun* partial) {
  for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    if (partial != nullptr && layer < partial->finished()) {
      load_finished_block(layer, *partial);
      if (options_.max_static_error > 0) count_acts(partial->load(layer));
      continue;
    }
    const std::vector<BlockTensor> finished = quantize_block(layer);
    count_acts(finished);
    if (partial != nullptr) partial->save(finished);
  }
}

// The file is in the folder of finished blocks on the leader and in the temporary directory on
// other ranks. It is unlinked at once.
std::filesystem::path Pipeline::hidden_file(const PartialRun* partial) const {
  if (partial != nullptr) return partial->folder() / "hidden";
  return std::filesystem::temp_directory_path() / ("leq-hidden-" + std::to_string(::getpid()) +
                                                   "-" + std::to_string(options_.ranks->rank()));
}

void Pipeline::run_with(PartialRun* partial, const CalibrationMemory& memory) {
  if (partial != nullptr) report_resumed(*partial, config_, options_);
  if (!loaded_) {
    hidden_ = std::make_unique<HiddenStates>(
        std::ssize(options_.data.windows), options_.data.length * config_.width,
        memory.hidden_on_disk > 0 ? hidden_file(partial) : std::filesystem::path());
    source_.embed(options_.data, *hidden_);
  }
  quantize_all(partial);
  if (writer_) writer_->finish();
  report();
}

UnfinishedRun unfinished_run(const BlockOptions& options) {
  if (!options.resume) return UnfinishedRun::replace;
  return options.ranks->size() > 1 ? UnfinishedRun::refuse : UnfinishedRun::resume;
}

std::optional<PartialRun> Pipeline::run() {
  open_statistics();
  const CalibrationMemory memory = plan_memory();  // may throw; nothing is written yet
  if (!options_.ranks->leads()) {
    run_with(nullptr, memory);
    return std::nullopt;
  }
  PartialRun partial(options_.partial, run_identity(config_, weights_, options_, calibration()),
                     unfinished_run(options_), options_.say);
  try {
    run_with(&partial, memory);
  } catch (const std::exception&) {
    partial.report_kept();
    throw;
  }
  return partial;
}

void Pipeline::report() const {
  if (options_.max_static_error > 0) {
    options_.say(
        "act         " + std::to_string(linears_by_token_) + " of " + std::to_string(linears_) +
        " linears use one scale per token, because the error with a fixed scale is more than " +
        fixed(options_.max_static_error, 1) + " times as large");
  }
  if (experts_.experts > 0) {
    options_.say("experts     the fewest calibration tokens of an expert are " +
                 std::to_string(experts_.fewest) + " (" + experts_.site + "); " +
                 std::to_string(experts_.rare) + " of " + std::to_string(experts_.experts) +
                 " experts had fewer than " + std::to_string(kFewestExpertTokens) +
                 " tokens: their down weights are quantized by rtn");
  }
  if (loaded_) return;
  if (std::ssize(options_.data.windows) < 2) {
    options_.say(
        "stability   unknown, because one window cannot be compared: give a longer text or more " +
        Setting{"samples"}.marked());
    return;
  }
  options_.say(
      "stability   the statistics of both halves of the calibration text differ by at most " +
      fixed(100 * halves_.absmax, 1) + " % in the largest inputs, " +
      fixed(100 * halves_.square_mean, 1) + " % in their mean squares");
}

}  // namespace

ModelConfig written_config(const ModelConfig& config, const BlockOptions& options) {
  ModelConfig written = rewritten_config(config, options.fold_attention_biases);
  if (options.correct_bias && demands_of(written, options.plan).adds_biases) {
    written = with_linear_biases(std::move(written));
  }
  return written;
}

bool runs_sequentially(const ModelConfig& config, const BlockOptions& options) {
  const Demands demands = demands_of(config, options.plan);
  return demands.needs == Needs::hessian && options.true_sequential && options.load_stats.empty() &&
         options.save_stats.empty() && !demands.teacher_inputs;
}

bool wants_blocks(const ModelConfig& config, const BlockOptions& options) {
  const auto norms_keys = [](const LayerConfig& layer) {
    return layer.attention() != nullptr && layer.attention()->qk_norm;
  };
  require(!options.measure_keys || std::ranges::none_of(config.layers, norms_keys),
          ErrorKind::bad_setting, Setting{"measure_keys"},
          ": this model normalizes its keys, so their mean cannot be ",
          "computed from their inputs; leave it out");
  return options.fold || options.fold_attention_biases || options.measure_keys ||
         !options.load_stats.empty() || !options.save_stats.empty() ||
         demands_of(config, options.plan).needs != Needs::nothing;
}

std::string weights_checksum(const ModelConfig& config, std::span<const TensorInput> tensors) {
  std::vector<float> values;
  for (const TensorInput& tensor : tensors) {
    for (const char* part : {"q", "o", "down", "experts.0.down"}) {
      if (tensor.name != layer_tensor(0, part) &&
          tensor.name != layer_tensor(config.layer_count() - 1, part)) {
        continue;
      }
      const std::int64_t rows = std::min(kChecksumRows, tensor.shape[0]);
      const std::size_t old = values.size();
      values.resize(old + static_cast<std::size_t>(rows * tensor.shape[1]));
      tensor.read(0, rows, std::span(values).subspan(old));
    }
  }
  return checksum_text(checksum(std::as_bytes(std::span(values))));
}

BlocksResult quantize_blocks(const ModelConfig& config, std::span<const TensorInput> tensors,
                             const BlockOptions& options) {
  Pipeline pipeline(config, tensors, options);
  std::optional<PartialRun> partial = pipeline.run();
  return {std::move(partial), pipeline.calibration()};
}

PartialRun quantize_blocks_plainly(const ModelConfig& config, std::span<const TensorInput> tensors,
                                   const BlockOptions& options) {
  require(options.ranks->size() == 1, Setting{"keep_blocks"},
          ": one rank alone keeps blocks without calibration; leave it or ", Setting{"ranks"},
          " out");
  const std::string identity =
      run_identity(config, weights_checksum(config, tensors), options, Json::array());
  PartialRun partial(options.partial, identity, unfinished_run(options), options.say);
  report_resumed(partial, config, options);
  ThreadPool pool(options.threads);
  while (partial.finished() < config.layer_count()) {
    const std::string block_name = layer_tensor(partial.finished(), "");
    std::vector<BlockTensor> block;
    for (const TensorInput& tensor : tensors) {
      if (!tensor.name.starts_with(block_name)) continue;
      require(!options.stop(), ErrorKind::interrupted, "interrupted");
      const TensorPlan plan = options.plan(tensor.name, tensor.role);
      block.push_back({tensor.name, tensor.shape, quantize_input(tensor, plan, pool)});
    }
    partial.save(block);
    options.progress(partial.finished(), config.layer_count());
  }
  return partial;
}

}  // namespace leq
