#include "quantize/pipeline/quantize_blocks.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_layout.h"
#include "model/weights.h"
#include "platform/make_backend.h"
#include "quantize/methods/zeroquant.h"
#include "quantize/pipeline/block_pass.h"
#include "quantize/pipeline/block_readers.h"
#include "quantize/pipeline/calibration_memory.h"
#include "quantize/pipeline/statistics_file.h"
#include "quantize/rewrites/act_rounding.h"
#include "quantize/rewrites/site.h"

namespace leq {
namespace {

constexpr int kSampleTokens = 512;
constexpr std::int64_t kChecksumRows = 16;
const std::vector<Reader> kAllReaders = {kBlockReaders.begin(), kBlockReaders.end()};

// What the plans of all block linears ask for together.
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

// nullptr where a fold has added the part.
const TensorSpec* find_part(const std::vector<TensorSpec>& specs, const std::string& part) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const TensorSpec& spec) { return spec.name == part; });
  return found != specs.end() ? &*found : nullptr;
}

class Pipeline {
 public:
  Pipeline(const ModelConfig& config, std::span<const TensorInput> tensors,
           const BlockOptions& options)
      : source_(config, tensors, options.rewrites),
        config_(written_config(config, options)),
        options_(options),
        backend_(make_backend({"cpu", options.threads})),
        pool_(options.threads),
        specs_(block_specs(config_)),
        weights_(weights_checksum(config, tensors)) {
    loaded_ = !options.load_stats.empty();
    const Demands demands = demands_of(config_, options.plan);
    needs_ = demands.needs;
    sequential_ = needs_ == Needs::hessian && options.true_sequential && !loaded_ &&
                  options.save_stats.empty() && !demands.teacher_inputs;
    const bool of_fold = options.fold && options.fold->wants_hessian;
    once_ = {of_fold || (needs_ == Needs::hessian && !sequential_), kSampleTokens};
  }

  PartialRun run();
  Json calibration() const;

 private:
  using Statistics = std::map<Reader, InputStatistics>;

  StatisticsIdentity identity_of_data() const;
  void open_statistics();
  CalibrationMemory plan_memory();
  std::string identity() const;
  void pass_finished_block(std::int64_t layer, const PartialRun& partial);
  BlockTensors load(std::int64_t layer) const;
  BlockTensors load_finished(const std::vector<BlockTensor>& tensors, std::int64_t layer);
  Statistics statistics_once(std::int64_t layer, const BlockTensors& block);
  void save(std::int64_t layer, const Statistics& statistics);
  void fold(std::int64_t layer, BlockTensors& block, Statistics& statistics);
  TensorPlan plan_of(std::int64_t layer, const std::string& part) const;
  void judge_static_scale(std::int64_t layer, Reader reader, const BlockTensors& block,
                          const InputStatistics& inputs);
  void count_acts(const std::vector<BlockTensor>& block);
  void report() const;
  void quantize_sequentially(std::int64_t layer, BlockTensors& block);
  void quantize_readers(std::int64_t layer, BlockTensors& block, const Statistics& statistics);
  void quantize_part(std::int64_t layer, const std::string& part, BlockTensors& block,
                     const InputStatistics* statistics);
  std::vector<BlockTensor> finish(std::int64_t layer, const BlockTensors& block);
  Statistics pass(std::int64_t layer, BlockRun& run, const Pass& pass);
  void step(std::int64_t units);

  const BlockSource source_;
  const ModelConfig config_;  // of the blocks as they are written
  const BlockOptions& options_;
  std::unique_ptr<Backend> backend_;
  ThreadPool pool_;
  Needs needs_ = Needs::nothing;
  std::vector<TensorSpec> specs_;  // of one block
  std::string weights_;            // checksum
  bool loaded_ = false;
  bool sequential_ = false;
  StatisticsWanted once_;  // of the unquantized block
  std::unique_ptr<StatisticsReader> reader_;
  std::unique_ptr<StatisticsWriter> writer_;
  std::unique_ptr<HiddenStates> hidden_;
  std::map<std::string, QuantizedTensor> done_parts_;  // of the block in work
  std::map<Reader, std::string> folds_;  // of the block in work: checksums of the scales
  std::set<Reader> by_token_;  // of the block in work: inputs that a fixed scale does not suit
  std::int64_t linears_ = 0, linears_by_token_ = 0;  // planned with act tensor
  HalvesDifference halves_;
  std::int64_t done_ = 0, total_ = 0;  // units of progress
};

void Pipeline::step(std::int64_t units) {
  done_ += units;
  options_.progress(std::min(done_, total_), total_);
  require(!options_.stop(), ErrorKind::interrupted, "interrupted; the finished blocks are kept in ",
          options_.partial.string(), ": give the same command with ", Setting{"resume"},
          " to go on");
}

// All that the bytes of the blocks depend on.
std::string Pipeline::identity() const {
  Json json = {{"config", config_to_json(config_)},
               {"weights", weights_},
               {"sequential", sequential_},
               {"correct_bias", options_.correct_bias},
               {"max_static_error", options_.max_static_error},
               {"fold", options_.fold ? options_.fold->name : ""}};
  json["statistics"] = calibration();
  for (const TensorSpec& spec : tensor_list(config_)) {
    if (!is_block_linear(spec.role)) continue;
    const TensorPlan plan = options_.plan(spec.name, spec.role);
    json["plan"][spec.name] = {scheme_name(plan.scheme),
                               act_name(plan.act),
                               plan.method != nullptr ? plan.method->name : "absmax",
                               plan.options.damping,
                               plan.options.act_order,
                               plan.options.descent_passes,
                               plan.options.refit_scales};
  }
  return json.dump();
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
  Json all = Json::array();
  for (const StatisticsIdentity& from : reader_->identities())
    all.push_back(calibration_json(from));
  return all;
}

void Pipeline::open_statistics() {
  if (loaded_) {
    reader_ = std::make_unique<StatisticsReader>(options_.load_stats, source_.config(), weights_,
                                                 once_.hessian);
  }
  if (options_.save_stats.empty()) return;
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
  const CalibrationMemory memory = plan_calibration(config_, shape, *backend_, options_.max_ram);
  options_.say("memory      " + describe(memory));
  const std::int64_t passes = loaded_ ? 0 : sequential_ ? (options_.fold ? 6 : 5) : 1;
  total_ =
      config_.layers * (passes * shape.windows + 7 * std::max<std::int64_t>(1, shape.windows / 4));
  return memory;
}

BlockTensors Pipeline::load(std::int64_t layer) const {
  BlockTensors block = source_.load(layer);
  for (const TensorSpec& spec : specs_) {  // biases to be corrected
    if (!block.has(spec.name)) block.parts[spec.name] = matrix_of(spec.shape);
  }
  return block;
}

BlockTensors Pipeline::load_finished(const std::vector<BlockTensor>& tensors, std::int64_t layer) {
  BlockTensors block;
  const std::size_t front = layer_tensor(layer, "").size();
  for (const BlockTensor& tensor : tensors) {
    Matrix matrix = matrix_of(tensor.shape);
    unpack_all(tensor.quantized.weight.view(), matrix.values, pool_);
    block.parts[tensor.name.substr(front)] = std::move(matrix);
  }
  return block;
}

Pipeline::Statistics Pipeline::pass(std::int64_t layer, BlockRun& run, const Pass& pass) {
  const PassContext context = {
      run, *hidden_, *backend_, pool_, "layers." + std::to_string(layer), [this] { step(1); }};
  PassResult result = run_pass(context, pass);
  halves_.absmax = std::max(halves_.absmax, result.halves.absmax);
  halves_.square_mean = std::max(halves_.square_mean, result.halves.square_mean);
  return std::move(result.statistics);
}

Pipeline::Statistics Pipeline::statistics_once(std::int64_t layer, const BlockTensors& block) {
  Statistics statistics;
  if (loaded_) {
    for (const Reader reader : kBlockReaders) statistics[reader] = reader_->read(layer, reader);
    return statistics;
  }
  BlockRun run(config_, layer, block, *backend_, options_.data.length);
  const Pass once = {.mlp = sequential_ ? Extent::inputs : Extent::whole,
                     .readers = kAllReaders,
                     .wanted = once_,
                     .keep = !sequential_};
  statistics = pass(layer, run, once);
  save(layer, statistics);
  return statistics;
}

void Pipeline::save(std::int64_t layer, const Statistics& statistics) {
  if (!writer_) return;
  for (const auto& [reader, of_input] : statistics) writer_->add(layer, reader, of_input);
}

// A block that an interrupted run has finished: the hidden states move on through it as they did.
void Pipeline::pass_finished_block(std::int64_t layer, const PartialRun& partial) {
  if (loaded_) return;
  const BlockTensors block = sequential_ ? load_finished(partial.load(layer), layer) : load(layer);
  BlockRun run(config_, layer, block, *backend_, options_.data.length);
  Pass whole;
  if (writer_) {
    whole.readers = kAllReaders;
    whole.wanted = once_;
  }
  save(layer, pass(layer, run, whole));
}

// Of a linear.
TensorPlan Pipeline::plan_of(std::int64_t layer, const std::string& part) const {
  TensorPlan plan = options_.plan(layer_tensor(layer, part), find_part(specs_, part)->role);
  if (plan.act == ActKind::tensor && by_token_.contains(reader_of(part))) plan.act = ActKind::row;
  return plan;
}

void Pipeline::judge_static_scale(std::int64_t layer, Reader reader, const BlockTensors& block,
                                  const InputStatistics& inputs) {
  if (options_.max_static_error == 0) return;
  for (const SmoothingSite& site : smoothing_sites(config_)) {
    if (reader_of(site.consumers.front()) != reader) continue;
    const TensorPlan plan = plan_of(layer, site.consumers.front());
    if (plan.act != ActKind::tensor || !plan.scheme.is_integer()) return;
    const ActErrors errors =
        act_errors(make_site(site, block, inputs, &pool_), plan.scheme, static_act_scale(inputs));
    if (errors.fixed > options_.max_static_error * errors.by_token) by_token_.insert(reader);
  }
}

void Pipeline::count_acts(const std::vector<BlockTensor>& block) {
  for (const BlockTensor& tensor : block) {
    const ActKind act = tensor.quantized.weight.act;
    if (act != ActKind::tensor && act != ActKind::row) continue;
    ++linears_;
    if (act == ActKind::row) ++linears_by_token_;
  }
}

void Pipeline::fold(std::int64_t layer, BlockTensors& block, Statistics& statistics) {
  const auto plan = [&](const std::string& part) { return plan_of(layer, part); };
  for (const SmoothingSite& site : smoothing_sites(config_)) {
    InputStatistics& inputs = statistics.at(reader_of(site.consumers.front()));
    const FoldChoice choice = options_.fold->choose({site, block, inputs, plan, pool_});
    const std::vector<float>& scale = choice.scales;
    if (scale.empty()) continue;
    fold_scales(block, site, scale);
    folds_[reader_of(site.consumers.front())] =
        checksum_text(checksum(std::as_bytes(std::span(scale))));
    for (std::size_t i = 0; i < choice.weights.size(); ++i) {
      block.at(site.consumers[i]).values = choice.weights[i];
    }
    std::vector<float> of_column(static_cast<std::size_t>(site.columns));
    for (std::size_t k = 0; k < of_column.size(); ++k) {
      of_column[k] = scale[static_cast<std::size_t>(site.scale_of[k])];
    }
    divide_inputs(inputs, of_column);
  }
}

void Pipeline::quantize_part(std::int64_t layer, const std::string& part, BlockTensors& block,
                             const InputStatistics* statistics) {
  const std::string name = layer_tensor(layer, part);
  const TensorPlan plan = plan_of(layer, part);
  Matrix& weight = block.at(part);
  QuantizedTensor& result = done_parts_[part] =
      quantize_values(weight.values, weight.rows, weight.columns, plan, statistics, name, pool_);
  if (const auto found = folds_.find(reader_of(part)); found != folds_.end()) {
    result.record.fold = found->second;
  }
  const std::string bias = part + ".bias";
  const bool corrected = options_.correct_bias && statistics != nullptr && plan.method != nullptr &&
                         !plan.scheme.is_float() && block.has(bias);
  if (corrected || sequential_) {
    std::vector<float> found(weight.values.size());
    unpack_all(result.weight.view(), found, pool_);
    if (corrected) {
      const std::vector<float> gain =
          bias_correction({weight.values, found, weight.rows, weight.columns, &pool_}, *statistics);
      std::vector<float>& values = block.at(bias).values;
      for (std::size_t n = 0; n < gain.size(); ++n) values[n] += gain[n];
    }
    // In place: a run of this block reads the values where they lie.
    if (sequential_) std::copy(found.begin(), found.end(), weight.values.begin());
  }
  step(std::max<std::int64_t>(1, std::ssize(options_.data.windows) / 4));
}

void Pipeline::quantize_readers(std::int64_t layer, BlockTensors& block,
                                const Statistics& statistics) {
  for (const auto& [reader, inputs] : statistics) {
    judge_static_scale(layer, reader, block, inputs);
    for (const std::string& part : parts_of(reader, config_)) {
      quantize_part(layer, part, block, &inputs);
    }
  }
}

void Pipeline::quantize_sequentially(std::int64_t layer, BlockTensors& block) {
  constexpr StatisticsWanted kWanted = {true, kSampleTokens};
  BlockRun run(config_, layer, block, *backend_, options_.data.length);
  const std::array<Pass, 4> stages = {{
      {Extent::inputs, Extent::none, {Reader::qkv}, kWanted, false},
      {Extent::inputs, Extent::none, {Reader::o}, kWanted, false},
      {Extent::whole, Extent::inputs, {Reader::gate_up}, kWanted, true},
      {Extent::none, Extent::inputs, {Reader::down}, kWanted, false},
  }};
  for (const Pass& stage : stages) quantize_readers(layer, block, pass(layer, run, stage));
  pass(layer, run, {.attention = Extent::none});
}

std::vector<BlockTensor> Pipeline::finish(std::int64_t layer, const BlockTensors& block) {
  std::vector<BlockTensor> tensors;
  const auto add_vector = [&](const std::string& part) {
    const Matrix& matrix = block.at(part);
    const TensorSpec* spec = find_part(specs_, part);
    const std::string name = layer_tensor(layer, part);
    tensors.push_back(
        {name, spec != nullptr ? spec->shape : Shape{matrix.columns},
         quantize_values(matrix.values, matrix.rows, matrix.columns,
                         options_.plan(name, TensorRole::vector), nullptr, name, pool_)});
  };
  for (const TensorSpec& spec : specs_) {
    if (is_block_linear(spec.role)) {
      tensors.push_back(
          {layer_tensor(layer, spec.name), spec.shape, std::move(done_parts_.at(spec.name))});
    } else {
      add_vector(spec.name);
    }
  }
  for (const auto& [part, matrix] : block.parts) {  // what folds have added: inv_smooth
    if (find_part(specs_, part) == nullptr) add_vector(part);
  }
  done_parts_.clear();
  by_token_.clear();
  folds_.clear();
  count_acts(tensors);
  return tensors;
}

PartialRun Pipeline::run() {
  open_statistics();
  const CalibrationMemory memory = plan_memory();  // may refuse: before anything is written
  PartialRun partial(options_.partial, identity(), options_.resume);
  if (partial.finished() > 0) {
    options_.say("resume      " + std::to_string(partial.finished()) + " of " +
                 std::to_string(config_.layers) + " blocks are done");
  }
  if (!loaded_) {
    hidden_ = std::make_unique<HiddenStates>(
        std::ssize(options_.data.windows), options_.data.length * config_.width,
        memory.hidden_on_disk > 0 ? partial.folder() / "hidden" : std::filesystem::path());
    source_.embed(options_.data, *hidden_, *backend_);
  }
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    if (layer < partial.finished()) {
      pass_finished_block(layer, partial);
      if (options_.max_static_error > 0) count_acts(partial.load(layer));
      continue;
    }
    BlockTensors block = load(layer);
    Statistics statistics;
    if (!sequential_ || options_.fold) statistics = statistics_once(layer, block);
    if (options_.fold) fold(layer, block, statistics);
    if (sequential_) {
      statistics.clear();
      quantize_sequentially(layer, block);
    } else {
      quantize_readers(layer, block, statistics);
    }
    partial.save(finish(layer, block));
  }
  if (writer_) writer_->finish();
  report();
  return partial;
}

void Pipeline::report() const {
  if (options_.max_static_error > 0) {
    options_.say("act         " + std::to_string(linears_by_token_) + " of " +
                 std::to_string(linears_) + " linears take a scale for each token, because a " +
                 "fixed one errs more than " + fixed(options_.max_static_error, 1) +
                 " times as much");
  }
  if (loaded_) return;
  if (std::ssize(options_.data.windows) < 2) {
    options_.say("stability   not known from one window: give a longer text or more " +
                 Setting{"samples"}.marked());
    return;
  }
  options_.say("stability   halves of the calibration data differ by at most " +
               fixed(100 * halves_.absmax, 1) + " % in the largest inputs, " +
               fixed(100 * halves_.square_mean, 1) + " % in their mean squares");
}

}  // namespace

ModelConfig written_config(const ModelConfig& config, const BlockOptions& options) {
  ModelConfig written = rewritten_config(config, options.rewrites);
  if (options.correct_bias && demands_of(written, options.plan).adds_biases) {
    written.qkv_bias = written.output_bias = written.mlp_bias = true;
  }
  return written;
}

bool wants_blocks(const ModelConfig& config, const BlockOptions& options) {
  return options.fold || options.rewrites.any() || !options.load_stats.empty() ||
         !options.save_stats.empty() || demands_of(config, options.plan).needs != Needs::nothing;
}

std::string weights_checksum(const ModelConfig& config, std::span<const TensorInput> tensors) {
  std::vector<float> values;
  for (const TensorInput& tensor : tensors) {
    for (const char* part : {"q", "o", "down"}) {
      if (tensor.name != layer_tensor(0, part) &&
          tensor.name != layer_tensor(config.layers - 1, part)) {
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
  PartialRun partial = pipeline.run();
  return {std::move(partial), pipeline.calibration()};
}

}  // namespace leq
