#include "quantize/run/blocks.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "backend/cpu/workers.h"
#include "base/error.h"
#include "base/text.h"
#include "format/leq_layout.h"
#include "model/weights.h"
#include "quantize/calibration/calibration.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"
#include "quantize/rewrites/fold.h"
#include "quantize/run/block_run.h"
#include "quantize/run/quantize_tensor.h"
#include "tokenizer/tokenizer.h"

namespace leq {
namespace {

// Data that the blocks of a run share; all referenced objects must outlive them.
struct BlockContext {
  const ModelConfig& config;
  const QuantizeOptions& options;
  ThreadPool& pool;
  bool sequential = false;  // quantized weights replace f32 weights immediately
};

// Experts with fewer calibration tokens than this are quantized without input statistics.
constexpr std::int64_t kFewestExpertTokens = 32;

// Number of calibration tokens of the experts in a layer, or in all layers.
struct ExpertTokens {
  std::int64_t experts = 0;
  std::int64_t fewest = 0;  // least number of tokens of any expert
  std::string site;         // site of that expert
  std::int64_t rare = 0;    // experts with fewer than kFewestExpertTokens

  void add(const ExpertTokens& more) {
    if (more.experts == 0) return;
    if (experts == 0 || more.fewest < fewest) {
      fewest = more.fewest;
      site = more.site;
    }
    experts += more.experts;
    rare += more.rare;
  }
};

// Converts one block from f32 to its stored tensors. Folds it, checks its inputs and quantizes it
// part by part, in the order of the run.
class BlockWork {
 public:
  BlockWork(const BlockContext& context, std::int64_t layer, BlockTensors tensors)
      : context_(context),
        layer_(layer),
        sites_(linear_sites(context.config, layer)),
        specs_(layer_tensors(context.config, layer)),
        block_(std::move(tensors)) {}

  std::int64_t layer() const { return layer_; }
  // The tensors in their current state; their addresses do not change.
  const BlockTensors& tensors() const { return block_; }
  const std::vector<LinearSite>& sites() const { return sites_; }

  // Scales input channels with options.fold and divides the statistics by the same scales.
  void fold(SiteStatistics& statistics);
  // Called before the linears of these sites are quantized. Marks the inputs that need a scale for
  // each token (act tensor), and the experts that have too few tokens.
  void check_inputs(std::size_t site, const InputStatistics& inputs);
  const ExpertTokens& expert_tokens() const { return experts_; }
  // Number of weights of a linear.
  std::int64_t size_of(const std::string& part) const { return std::ssize(block_.at(part).values); }
  // Whether ranks can divide the rows of a linear.
  bool divides_rows(const std::string& part) const { return leq::divides_rows(plan_of(part)); }
  // Chooses the codes of a linear; all ranks do so together if they can divide its rows.
  QuantizedTensor quantize(const std::string& part, const InputStatistics& inputs) const;
  // Stores codes chosen on any rank: corrects the linear's bias and replaces its weights.
  void keep(const std::string& part, QuantizedTensor chosen, const InputStatistics& inputs);
  // Returns all tensors of the block, after each linear was quantized.
  std::vector<BlockTensor> finish();

 private:
  TensorPlan plan_of(const std::string& part) const { return plan_of(part, context_.options.plan); }
  TensorPlan plan_of(const std::string& part, const TensorPlanner& planner) const;
  bool needs_scale_by_token(std::size_t site, const InputStatistics& inputs) const;
  bool is_rare(const std::string& part) const { return rare_.contains(site_of(sites_, part)); }
  const TensorSpec* find_part(const std::string& part) const;
  void note_key_mean(const InputStatistics& inputs);

  BlockContext context_;
  std::int64_t layer_;
  std::vector<LinearSite> sites_;
  std::vector<TensorSpec> specs_;
  BlockTensors block_;
  std::map<std::string, QuantizedTensor> done_;
  std::map<std::size_t, std::string> folds_;  // by site: checksums of the scales
  std::set<std::string> by_token_;            // names of blocks whose inputs need a scale per token
  std::set<std::size_t> rare_;                // sites of experts with too few tokens
  ExpertTokens experts_;
};

// Returns nullptr for parts that a fold has added.
const TensorSpec* BlockWork::find_part(const std::string& part) const {
  const auto found = std::ranges::find(specs_, part, &TensorSpec::name);
  return found != specs_.end() ? &*found : nullptr;
}

// The plan of a linear of this block.
TensorPlan BlockWork::plan_of(const std::string& part, const TensorPlanner& planner) const {
  TensorPlan plan = planner(layer_tensor(layer_, part), find_part(part)->role);
  const std::size_t site = site_of(sites_, part);
  if (plan.act == ActKind::tensor && by_token_.contains(sites_[site].block_name()))
    plan.act = ActKind::row;
  if (rare_.contains(site) && plan.method != nullptr && plan.method->needs != Needs::nothing) {
    const QuantMethod& rtn = require_method("rtn");
    plan.method = rtn.supports(plan.scheme) ? &rtn : nullptr;
    plan.label.clear();
  }
  return plan;
}

void BlockWork::check_inputs(std::size_t index, const InputStatistics& inputs) {
  const LinearSite& site = sites_[index];
  if (site.share() < 1) {
    const bool rare = inputs.tokens < kFewestExpertTokens;
    experts_.add({1, inputs.tokens, layer_tensor(layer_, site.name), rare ? 1 : 0});
    if (rare) rare_.insert(index);
  }
  if (rare_.contains(index) || needs_scale_by_token(index, inputs)) {
    by_token_.insert(site.block_name());
  }
}

bool BlockWork::needs_scale_by_token(std::size_t index, const InputStatistics& inputs) const {
  const double limit = context_.options.max_static_error;
  if (limit == 0) return false;
  for (const SmoothingSite& site : smoothing_sites(context_.config, layer_)) {
    if (site_of(sites_, site.consumers.front()) != index) continue;
    const TensorPlan plan = plan_of(site.consumers.front());
    if (plan.act != ActKind::tensor || !plan.scheme.is_integer()) return false;
    const ActErrors errors =
        act_errors(make_site(site, block_, inputs, &context_.pool, *context_.options.ranks),
                   plan.scheme, static_act_scale(inputs));
    if (errors.fixed > limit * errors.by_token) return true;
  }
  return false;
}

void BlockWork::fold(SiteStatistics& statistics) {
  const auto plan = [&](const std::string& part) {
    return plan_of(part, context_.options.fold_plan);
  };
  for (const SmoothingSite& site : smoothing_sites(context_.config, layer_)) {
    const std::size_t index = site_of(sites_, site.consumers.front());
    InputStatistics& inputs = statistics.at(index);
    if (sites_[index].share() < 1 && inputs.tokens < kFewestExpertTokens) continue;
    const FoldChoice choice = context_.options.fold->choose(
        {site, block_, inputs, plan, context_.pool, *context_.options.ranks});
    const std::vector<float>& scale = choice.scales;
    if (scale.empty()) continue;
    fold_scales(block_, site, scale);
    folds_[index] = checksum_text(checksum(std::as_bytes(std::span(scale))));
    for (std::size_t i = 0; i < choice.weights.size(); ++i) {
      block_.at(site.consumers[i]).values = choice.weights[i];
    }
    std::vector<float> of_column(static_cast<std::size_t>(site.columns));
    for (std::size_t k = 0; k < of_column.size(); ++k) {
      of_column[k] = scale[static_cast<std::size_t>(site.scale_of[k])];
    }
    divide_inputs(inputs, of_column);
  }
}

QuantizedTensor BlockWork::quantize(const std::string& part, const InputStatistics& inputs) const {
  const Matrix& weight = block_.at(part);
  QuantizedTensor result =
      quantize_values(weight.values, weight.rows, weight.columns, plan_of(part),
                      is_rare(part) ? nullptr : &inputs, layer_tensor(layer_, part), context_.pool,
                      divides_rows(part) ? *context_.options.ranks : one_rank());
  if (const auto found = folds_.find(site_of(sites_, part)); found != folds_.end()) {
    result.record.fold = found->second;
  }
  return result;
}

void BlockWork::keep(const std::string& part, QuantizedTensor chosen,
                     const InputStatistics& inputs) {
  if (part == "k") note_key_mean(inputs);
  const TensorPlan plan = plan_of(part);
  Matrix& weight = block_.at(part);
  const QuantizedTensor& result = done_[part] = std::move(chosen);
  const std::string bias = part + ".bias";
  const bool corrected =
      plan.method != nullptr && !plan.scheme.is_float() && block_.has(bias) && !is_rare(part);
  if (corrected) {
    std::vector<float> found(weight.values.size());
    unpack_all(result.weight.view(), found, context_.pool);
    const std::vector<float> gain = mean_difference(
        {weight.values, found, weight.rows, weight.columns, &context_.pool}, inputs);
    std::vector<float>& values = block_.at(bias).values;
    for (std::size_t n = 0; n < gain.size(); ++n) values[n] += gain[n];
  }
  // Changes the values in place, because a run of this block has pointers to them.
  if (context_.sequential) unpack_all(result.weight.view(), weight.values, context_.pool);
}

// Mean of the unquantized k. Undefined with norms of keys, because a norm is not linear.
void BlockWork::note_key_mean(const InputStatistics& inputs) {
  const AttentionConfig* attention = context_.config.layer(layer_).attention();
  if (attention == nullptr || attention->qk_norm) return;
  const Matrix& weight = block_.at("k");
  const std::vector<float> zeros(weight.values.size());
  Matrix mean{
      1, weight.rows,
      mean_difference({weight.values, zeros, weight.rows, weight.columns, &context_.pool}, inputs)};
  if (block_.has("k.bias")) {
    const std::vector<float>& bias = block_.at("k.bias").values;
    for (std::size_t n = 0; n < bias.size(); ++n) mean.values[n] += bias[n];
  }
  block_.parts[std::string(kKeyMean)] = std::move(mean);
}

std::vector<BlockTensor> BlockWork::finish() {
  std::vector<BlockTensor> tensors;
  const auto add_vector = [&](const std::string& part) {
    const Matrix& matrix = block_.at(part);
    const TensorSpec* spec = find_part(part);
    const std::string name = layer_tensor(layer_, part);
    tensors.push_back({name, spec != nullptr ? spec->shape : Shape{matrix.columns},
                       quantize_values(matrix.values, matrix.rows, matrix.columns,
                                       context_.options.plan(name, TensorRole::vector), nullptr,
                                       name, context_.pool)});
  };
  for (const TensorSpec& spec : specs_) {
    if (is_block_linear(spec.role)) {
      tensors.push_back(
          {layer_tensor(layer_, spec.name), spec.shape, std::move(done_.at(spec.name))});
    } else {
      add_vector(spec.name);
    }
  }
  for (const auto& [part, matrix] : block_.parts) {  // not in the list: inv_smooth, key_mean
    if (find_part(part) == nullptr) add_vector(part);
  }
  return tensors;
}

// The statistics that the plans of all block linears require together.
Needs needs_of(const ModelConfig& config, const TensorPlanner& plan) {
  Needs all = Needs::nothing;
  for (const TensorSpec& spec : tensor_list(config)) {
    if (!is_block_linear(spec.role)) continue;
    const TensorPlan tensor = plan(spec.name, spec.role);
    if (tensor.act == ActKind::tensor) all = std::max(all, Needs::diagonal);
    if (tensor.method != nullptr) all = std::max(all, tensor.method->needs);
  }
  return all;
}

class Pipeline {
 public:
  Pipeline(const ImportedModel& model, const QuantizeOptions& options)
      : model_(model),
        options_(options),
        source_(model.config, model.tensors),
        config_(model.config),
        workers_(options.threads),
        needs_(needs_of(config_, options.plan)),
        sequential_(runs_sequentially(config_, options)) {
    const bool of_fold = options.fold && options.fold->wants_hessian;
    once_ = {of_fold || (needs_ == Needs::hessian && !sequential_), kSampleTokens};
  }

  FinishedBlocks run(const std::filesystem::path& folder);

 private:
  CalibrationMemory plan_memory();
  void load_finished_block(std::int64_t layer, const PartialRun& partial);
  SiteStatistics statistics_once(std::int64_t layer, const BlockTensors& block);
  void count_acts(const std::vector<BlockTensor>& block);
  void report() const;
  std::vector<BlockTensor> quantize_block(std::int64_t layer);
  void quantize_sequentially(BlockWork& work);
  void quantize_sites(BlockWork& work, const SiteStatistics& statistics);
  SiteStatistics pass(std::int64_t layer, BlockRun& run, const Pass& pass);
  void quantize_all(PartialRun* partial, bool hidden_on_disk);
  void step(std::int64_t units);

  const ImportedModel& model_;
  const QuantizeOptions& options_;
  const BlockSource source_;
  const ModelConfig& config_;
  Workers workers_;
  const Needs needs_;
  const bool sequential_;
  StatisticsWanted once_;  // statistics to gather from the unquantized block
  CalibrationData data_;
  std::unique_ptr<HiddenStates> hidden_;
  std::optional<BlockInputs> inputs_;
  std::int64_t linears_ = 0, linears_by_token_ = 0;  // linears with act tensor, and those by token
  ExpertTokens experts_;                             // summed over all blocks
  std::int64_t done_ = 0, total_ = 0;                // progress: work done and total
};

void Pipeline::step(std::int64_t units) {
  done_ += units;
  options_.progress("quantize", std::min(done_, total_), total_, "");
  require(!options_.stop(), ErrorKind::interrupted, "interrupted");
}

CalibrationMemory Pipeline::plan_memory() {
  CalibrationShape shape;
  shape.windows = std::ssize(data_.windows);
  shape.length = data_.length;
  shape.together = !sequential_ || options_.fold.has_value();
  shape.hessian_together = once_.hessian;
  shape.hessian_of_one = needs_ == Needs::hessian;
  shape.sample_tokens = kSampleTokens;
  const CalibrationMemory memory =
      plan_calibration(config_, shape, workers_.backend->layout(), options_.max_ram);
  if (options_.max_ram > 0) options_.say("memory      " + describe(memory));
  for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    const std::vector<LinearSite> sites = linear_sites(config_, layer);
    const std::int64_t stages = std::ssize(stages_of(sites)) + 1;
    const std::int64_t passes = sequential_ ? stages + (options_.fold ? 1 : 0) : 1;
    std::int64_t linears = 0;
    for (const LinearSite& site : sites) linears += std::ssize(site.coded_weights());
    total_ += passes * shape.windows + linears * std::max<std::int64_t>(1, shape.windows / 4);
  }
  return memory;
}

SiteStatistics Pipeline::pass(std::int64_t layer, BlockRun& run, const Pass& pass) {
  const PassContext context = {run,
                               *hidden_,
                               *workers_.backend,
                               workers_.pool,
                               "layers." + std::to_string(layer),
                               [this] { step(1); },
                               *options_.ranks,
                               &*inputs_};
  return run_pass(context, pass);
}

SiteStatistics Pipeline::statistics_once(std::int64_t layer, const BlockTensors& block) {
  BlockRun run(config_, layer, block, *workers_.backend, data_.length, &source_);
  const Pass once = {.mlp = sequential_ ? Extent::inputs : Extent::whole,
                     .sites = all_sites(run.sites()),
                     .wanted = once_,
                     .keep = !sequential_};
  return pass(layer, run, once);
}

// Skips a block that an interrupted run has finished: only advances the hidden states through it.
void Pipeline::load_finished_block(std::int64_t layer, const PartialRun& partial) {
  BlockTensors block;
  if (sequential_) {
    const std::size_t front = layer_tensor(layer, "").size();
    for (const BlockTensor& tensor : partial.load(layer)) {
      Matrix matrix = matrix_of(tensor.shape);
      unpack_all(tensor.quantized.weight.view(), matrix.values, workers_.pool);
      block.parts[tensor.name.substr(front)] = std::move(matrix);
    }
  } else {
    block = source_.load(layer);
  }
  BlockRun run(config_, layer, block, *workers_.backend, data_.length, &source_);
  pass(layer, run, {});
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
void Pipeline::quantize_sites(BlockWork& work, const SiteStatistics& statistics) {
  struct Part {
    std::string name;
    const InputStatistics& inputs;
  };
  const std::int64_t units = std::max<std::int64_t>(1, std::ssize(data_.windows) / 4);
  std::vector<Part> whole;  // linears that a single rank quantizes
  std::vector<std::int64_t> sizes;
  for (const auto& [site, inputs] : statistics) work.check_inputs(site, inputs);
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
  BlockRun run(config_, layer, work.tensors(), *workers_.backend, data_.length, &source_);
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
  BlockWork work({config_, options_, workers_.pool, sequential_}, layer, source_.load(layer));
  SiteStatistics statistics;
  if (!sequential_ || options_.fold) statistics = statistics_once(layer, work.tensors());
  if (options_.fold) work.fold(statistics);
  if (sequential_) {
    statistics.clear();
    quantize_sequentially(work);
  } else {
    quantize_sites(work, statistics);
  }
  experts_.add(work.expert_tokens());
  return work.finish();
}

// `partial` is set on the leader and null on other ranks, because several ranks cannot resume.
void Pipeline::quantize_all(PartialRun* partial, bool hidden_on_disk) {
  if (partial != nullptr && partial->finished() > 0) {
    options_.say("resume      " + std::to_string(partial->finished()) + " of " +
                 std::to_string(config_.layer_count()) + " blocks are done");
  }
  std::filesystem::path file;  // unlinked at once
  if (hidden_on_disk && partial != nullptr) {
    file = partial->folder() / "hidden";
  } else if (hidden_on_disk) {
    file = std::filesystem::temp_directory_path() / ("leq-hidden-" + std::to_string(::getpid()) +
                                                     "-" + std::to_string(options_.ranks->rank()));
  }
  hidden_ =
      std::make_unique<HiddenStates>(std::ssize(data_.windows), data_.length * config_.width, file);
  source_.embed(data_, *hidden_);
  inputs_.emplace(config_, data_, file);
  for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    inputs_->keep(layer, *hidden_);
    if (partial != nullptr && layer < partial->finished()) {
      load_finished_block(layer, *partial);
      if (options_.max_static_error > 0) count_acts(partial->load(layer));
      continue;
    }
    const std::vector<BlockTensor> finished = quantize_block(layer);
    count_acts(finished);
    if (partial != nullptr) partial->save(finished);
  }
  report();
}

FinishedBlocks Pipeline::run(const std::filesystem::path& folder) {
  const bool alone = options_.ranks->size() == 1;
  data_ =
      calibration_data(options_.calibration, Tokenizer(model_.tokenizer), model_.config.context);
  if (!data_.note.empty()) options_.say("calibration " + data_.note);
  const bool hidden_on_disk =
      plan_memory().hidden_on_disk > 0;  // may throw: nothing is written yet
  Json calibration = Json::array({calibration_json(data_)});
  if (!options_.ranks->leads()) {
    quantize_all(nullptr, hidden_on_disk);
    return {};
  }
  const UnfinishedRun earlier = !options_.resume ? UnfinishedRun::replace
                                : alone          ? UnfinishedRun::resume
                                                 : UnfinishedRun::refuse;
  PartialRun partial(folder, run_identity(model_, options_, calibration), earlier, options_.say);
  try {
    quantize_all(&partial, hidden_on_disk);
  } catch (const std::exception&) {
    partial.report_kept();
    throw;
  }
  return {std::move(partial), std::move(calibration)};
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
}

}  // namespace

bool runs_sequentially(const ModelConfig& config, const QuantizeOptions& options) {
  return options.true_sequential && needs_of(config, options.plan) == Needs::hessian;
}

bool wants_calibration(const ModelConfig& config, const QuantizeOptions& options) {
  const auto norms_keys = [](const LayerConfig& layer) {
    return layer.attention() != nullptr && layer.attention()->qk_norm;
  };
  require(!options.measure_keys || std::ranges::none_of(config.layers, norms_keys),
          ErrorKind::bad_setting, Setting{"measure_keys"},
          ": this model normalizes its keys, so their mean cannot be ",
          "computed from their inputs; leave it out");
  return options.fold || options.measure_keys || needs_of(config, options.plan) != Needs::nothing;
}

FinishedBlocks quantize_blocks(const ImportedModel& model, const QuantizeOptions& options,
                               const std::filesystem::path& folder) {
  return Pipeline(model, options).run(folder);
}

}  // namespace leq
