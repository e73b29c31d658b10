#include "compare/workbench.h"

#include "base/error.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "base/version.h"
#include "convert/import.h"
#include "eval/report.h"
#include "quantize/pipeline/quantize_blocks.h"
#include "recipes/quantize_by_search.h"
#include "tensor/quant_scheme.h"

namespace leq {
namespace {

// Hashes sizes and times of the checkpoint's files and a checksum of some weights, so that an
// edited checkpoint has a different hash.
std::string hash_of_checkpoint(const ImportedModel& model) {
  Json facts = {{"weights", weights_checksum(model.config, model.tensors)},
                {"config", config_to_json(model.config)}};
  for (const std::filesystem::path& path : model.files) {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
    const auto size = std::filesystem::file_size(path, error);
    if (!error) facts["files"][path.filename().string()] = {size, static_cast<std::int64_t>(time)};
  }
  return sha256_hex(facts.dump());
}

// The folder with the finished blocks of an interrupted quantization.
std::filesystem::path partial_of(const std::filesystem::path& file) {
  return file.string() + ".partial";
}

constexpr double kComparedBits = 4.25;  // a search's target: the bits of int4 in groups of 64

std::filesystem::path made_folder(const std::filesystem::path& output) {
  std::error_code error;
  std::filesystem::create_directories(output, error);
  require(!error && std::filesystem::is_directory(output), ErrorKind::io, output.string(),
          ": no folder, and cannot be made one");
  return output;
}

CompareWindows planned_windows(const CompareJob& job, const ModelConfig& config,
                               std::int64_t tokens) {
  CompareWindows planned;
  planned.settings = resolve_protocol(job.protocol, config.context);
  planned.windows = plan_windows(planned.settings, tokens, job.text.string());
  require(planned.windows.size() >= 2, job.text.string(),
          ": one window is too little to tell candidates apart; give more text, or a smaller ",
          Setting{"window"});
  return planned;
}

// The search of recipe auto with fewer evaluations than in leq-quantize, because it is one of many
// candidates.
SearchedBits searched_bits(const CompareJob& job) {
  constexpr int kEvaluations = 48;
  constexpr std::int64_t kSearchWindows = 4;
  SearchedBits bits;
  bits.search.text = job.calibration.text.empty() ? std::string(built_in_calibration_text())
                                                  : job.calibration.text;
  bits.search.windows = kSearchWindows;
  bits.search.threads = job.threads;
  bits.search.target_bpw = kComparedBits;
  bits.search.options.evaluations = kEvaluations;
  return bits;
}

Join join_of(const CompareJob& job, const ModelConfig& config) {
  return resolve_protocol(job.protocol, config.context).join;
}

}  // namespace

CompareSizes quick_sizes() {
  CompareSizes sizes;
  sizes.layer_windows = 2;
  sizes.layer_tokens = 128;
  sizes.bench_runs = 3;
  sizes.prompt = 256;
  sizes.generated = 32;
  sizes.calibration_windows = {1, 4, 16};
  sizes.contexts = {128, 512, 2048};
  sizes.context_tokens = 2048;
  sizes.sequences = {1, 4};
  sizes.questions = 40;
  return sizes;
}

std::int64_t CompareWindows::scored() const {
  std::int64_t sum = 0;
  for (const Window& window : windows) sum += window.scored();
  return sum;
}

Workbench::Workbench(const CompareJob& job)
    : job_(job),
      workers_(job.threads),
      checkpoint_(import_checkpoint(job.checkpoint)),
      checkpoint_hash_(hash_of_checkpoint(checkpoint_)),
      tokenizer_(checkpoint_.tokenizer),
      text_(read_evaluation_text(job.text, join_of(job, checkpoint_.config))),
      tokens_(encode_text(tokenizer_, text_.text)),
      windows_(planned_windows(job, checkpoint_.config, std::ssize(tokens_))),
      folder_(checked_folder() / "work"),
      store_(job.output / "results") {}

std::filesystem::path Workbench::checked_folder() const {
  require(checkpoint_.has_tokenizer, job_.checkpoint.string(),
          ": no tokenizer, so no text to read");
  for (const Candidate& candidate : job_.candidates) file_identity(candidate);
  return made_folder(job_.output);
}

CompareWindows Workbench::short_windows(std::int64_t tokens, std::int64_t count) const {
  CompareWindows planned;
  planned.settings = windows_.settings;
  planned.settings.protocol = Protocol::hf;
  planned.settings.window = planned.settings.stride =
      std::min({tokens, checkpoint_.config.context, std::ssize(tokens_)});
  planned.settings.chunks = count;
  planned.windows = plan_windows(planned.settings, std::ssize(tokens_), job_.text.string());
  return planned;
}

CheckpointOptions Workbench::options_of(const Candidate& candidate) const {
  CheckpointOptions options = candidate_options(candidate, checkpoint_.config, job_.calibration);
  if (candidate.is_base()) options.type = dtype_name(checkpoint_.dtype);
  options.threads = job_.threads;
  options.stop = job_.stop;
  options.resume = true;  // after an interrupted comparison
  return options;
}

Json Workbench::file_identity(const Candidate& candidate) const {
  return {{"checkpoint", checkpoint_hash_},
          {"file", checkpoint_identity(checkpoint_, options_of(candidate))},
          {"bits", candidate.searches() ? kComparedBits : 0},
          {"version", kVersion}};
}

Json Workbench::identity(const Candidate& candidate, const std::string& step) const {
  return {{"file", file_identity(candidate)},
          {"cache", static_cast<int>(candidate.cache)},
          {"step", step},
          {"text", text_.text_sha256},
          {"protocol", describe(windows_.settings)},
          {"windows", std::ssize(windows_.windows)}};
}

std::filesystem::path Workbench::path_of(const Candidate& candidate) const {
  return folder_.path() / (identity_hash(file_identity(candidate)) + ".leq");
}

void Workbench::remove_file(const Candidate& candidate) {
  std::error_code ignored;  // the file may not exist
  std::filesystem::remove(path_of(candidate), ignored);
  std::filesystem::remove_all(partial_of(path_of(candidate)), ignored);
}

std::filesystem::path Workbench::file_of(const Candidate& candidate, Made* made) {
  std::filesystem::path path = path_of(candidate);
  if (file_exists(path)) return path;
  require_not_stopped();
  const bool begun = std::filesystem::exists(partial_of(path));
  const Stopwatch watch;
  const auto progress = [&](auto, auto) { require_not_stopped(); };
  if (candidate.searches()) {
    const std::filesystem::path base = file_of(parse_candidate(kBaseMethod));
    quantize_by_search(checkpoint_, path, options_of(candidate), searched_bits(job_), base,
                       progress);
  } else {
    quantize_imported(checkpoint_, path, options_of(candidate), progress);
  }
  if (made != nullptr) *made = {!begun, watch.seconds()};
  return path;
}

std::unique_ptr<Model> Workbench::open(const Candidate& candidate) {
  return std::make_unique<Model>(file_of(candidate), LoadOptions{.mode = LoadMode::map});
}

RunLimits Workbench::limits(const Candidate& candidate, const ModelConfig& config,
                            std::int64_t context, std::int64_t output_tokens) const {
  RunLimits limits;
  limits.context = context;
  limits.output_tokens = output_tokens;
  limits.key_type = limits.value_type = candidate.cache;
  return resolve_limits(limits, config);
}

Session Workbench::session(const Candidate& candidate, const Model& model, std::int64_t context,
                           std::int64_t output_tokens) {
  return Session(model, *workers_.backend,
                 limits(candidate, model.config(), context, output_tokens));
}

std::span<const Token> Workbench::tokens_of(const Window& window) const {
  return std::span(tokens_).subspan(static_cast<std::size_t>(window.first),
                                    static_cast<std::size_t>(window.count));
}

DivergenceKey Workbench::key(const CompareWindows& windows) const {
  PerplexityReport report;
  report.model = checkpoint_.folder;
  report.type = dtype_name(checkpoint_.dtype);
  report.settings = windows.settings;
  report.dataset_hash = text_.dataset_hash;
  report.text_sha256 = text_.text_sha256;
  report.vocab = checkpoint_.config.vocab;
  report.tokens = std::ssize(tokens_);
  report.windows = std::ssize(windows.windows);
  report.scored = windows.scored();
  return divergence_key(report, token_hash(tokens_, run_over(windows).window_bos));
}

PerplexityRun Workbench::run_over(const CompareWindows& windows) const {
  PerplexityRun run = {
      .tokens = tokens_, .windows = windows.windows, .protocol = windows.settings.protocol};
  if (run.protocol == Protocol::llamacpp_512 && tokenizer_.add_bos()) {
    run.window_bos = tokenizer_.bos();
  }
  run.progress = [this](std::int64_t, double) { require_not_stopped(); };
  return run;
}

const DivergenceBaseReader& Workbench::base_distributions(const CompareWindows& windows) {
  const Candidate base = parse_candidate(kBaseMethod);
  const Json identity = {file_identity(base), describe(windows.settings),
                         std::ssize(windows.windows), text_.text_sha256};
  const std::string name = identity_hash(identity);
  auto& reader = bases_[name];
  if (reader) return *reader;
  const std::filesystem::path path = folder_.path() / (name + ".kl");
  if (!file_exists(path)) {
    const std::unique_ptr<Model> model = open(base);
    Session base_session = session(base, *model, windows.settings.window);
    write_divergence_base(base_session, workers_.pool, run_over(windows), path, key(windows));
  }
  reader = std::make_unique<DivergenceBaseReader>(path);
  return *reader;
}

Divergence Workbench::measure(Session& session, const CompareWindows& windows) {
  return measure_divergence(session, workers_.pool, run_over(windows), base_distributions(windows),
                            key(windows));
}

void Workbench::require_not_stopped() const {
  require(!job_.stop(), ErrorKind::interrupted,
          "interrupted; what is measured is kept: the same command goes on from there");
}

void Workbench::remove_files() {
  bases_.clear();
  folder_.clear();
}

}  // namespace leq
