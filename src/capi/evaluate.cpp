// Perplexity and KL divergence, where each run opens sessions of its own; and quantization.
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "capi/internal.h"
#include "convert/import.h"
#include "eval/divergence.h"
#include "eval/perplexity.h"
#include "quantize/run/quantize.h"
#include "tensor/quant_scheme.h"

namespace leq::capi {
namespace {

ProtocolRequest protocol_of(const leq_perplexity_options& options, std::string_view text) {
  ProtocolRequest request;
  if (options.protocol != nullptr) request.protocol = options.protocol;
  if (options.join != nullptr) {
    request.join = options.join;
  } else if (default_join(sha256_hex(text)) == Join::none) {
    request.join = "none";
  }
  if (options.window != 0) request.window = options.window;
  if (options.stride != 0) request.stride = options.stride;
  request.chunks = options.chunks;
  return request;
}

// Opens a runtime with memory for one window at a time; `model` must outlive it.
Runtime window_runtime(const Model& model, const leq_perplexity_options& options,
                       std::int64_t window) {
  RunLimits limits;
  limits.context = window;
  limits.output_tokens = kOutputRows;
  choose_kv_names(options.key_type, options.value_type, model, limits);
  RuntimeOptions runtime;
  runtime.model = {std::shared_ptr<void>(), &model};
  if (options.device != nullptr) runtime.device.device = options.device;
  runtime.device.threads = options.threads;
  runtime.limits = [&](const Model&) { return limits; };
  return open_runtime(runtime);
}

// A text cut into the windows of a protocol.
struct MeasuredText {
  std::vector<Token> tokens;
  std::vector<Window> windows;
  ProtocolSettings settings;
  Token window_bos = kNoToken;

  MeasuredText(const Model& model, std::string_view text, const leq_perplexity_options& options)
      : settings(resolve_protocol(protocol_of(options, text), model.config().context)) {
    require(!text.empty(), "the text is empty");
    const auto invalid = first_invalid_utf8(text);
    require(!invalid, "the text: the byte at offset ", invalid.value_or(0), " is not UTF-8");
    const Tokenizer& tokenizer = model.tokenizer();
    tokens =
        encode_text(tokenizer, settings.join == Join::hf ? join_rows(text) : std::string(text));
    windows = plan_windows(settings, std::ssize(tokens));
    if (settings.protocol == Protocol::llamacpp_512 && tokenizer.add_bos()) {
      window_bos = tokenizer.bos();
    }
  }

  // `options` must outlive the run.
  PerplexityRun run(const leq_perplexity_options& options, const char* work) const {
    PerplexityRun run = {.tokens = tokens,
                         .windows = windows,
                         .protocol = settings.protocol,
                         .window_bos = window_bos};
    const auto end_if = [work](bool stop) {
      require(!stop, ErrorKind::interrupted, work, ": ended by the caller");
    };
    run.progress = [&options, work, end_if, total = std::ssize(windows)](std::int64_t done,
                                                                         double) {
      end_if(options.on_progress != nullptr &&
             options.on_progress(options.user, work, done, total) != 0);
    };
    run.before_forward = [&options, end_if] { end_if(is_cancelled(options.cancel)); };
    return run;
  }
};

leq_perplexity_result perplexity(const Model& model, std::string_view text,
                                 const leq_perplexity_options& options) {
  check_cancel(options.cancel);
  const MeasuredText measured(model, text, options);
  const Runtime own = window_runtime(model, options, measured.settings.window);
  ThreadPool pool(options.threads);
  const PerplexityResult found =
      measure_perplexity(*own.session, pool, measured.run(options, "perplexity"));
  leq_perplexity_result result = {};
  result.ppl = found.ppl;
  result.nll = found.nll;
  result.standard_error = found.standard_error;
  result.windows = found.windows;
  result.scored = found.scored;
  result.tokens = std::ssize(measured.tokens);
  return result;
}

leq_divergence_result divergence(const Model& base, const Model& model, std::string_view text,
                                 const leq_perplexity_options& options) {
  check_cancel(options.cancel);
  const MeasuredText measured(model, text, options);
  require(base.config().vocab == model.config().vocab, base.file().name(), ": ",
          base.config().vocab, " logits in a row, ", model.file().name(), " has ",
          model.config().vocab);
  require(MeasuredText(base, text, options).tokens == measured.tokens, base.file().name(),
          ": its tokenizer makes other tokens of the text than that of ", model.file().name());
  const Runtime base_session = window_runtime(base, options, measured.settings.window);
  const Runtime session = window_runtime(model, options, measured.settings.window);
  ThreadPool pool(options.threads);
  const DivergenceResult found = measure_divergence(*base_session.session, *session.session, pool,
                                                    measured.run(options, "divergence"))
                                     .summarize(measured.settings.protocol);
  leq_divergence_result result = {};
  result.kl_mean = found.kl_mean.value;
  result.kl_mean_error = found.kl_mean.error;
  result.kl_median = found.kl_median.value;
  result.kl_p99 = found.kl_p99.value;
  result.same_top1 = found.same_top1.value;
  result.same_top1_error = found.same_top1.error;
  result.ppl = found.ppl.value;
  result.ppl_base = found.ppl_base.value;
  result.windows = found.windows;
  result.scored = found.scored;
  return result;
}

// Quantizes a checkpoint to a .leq file, with the most used settings of leq-quantize.

std::string type_of_method(const std::string& method) {
  std::string names;
  for (const CheckpointMethod& known : checkpoint_methods()) {
    if (known.name == method) return known.type;
    names += (names.empty() ? "" : ", ") + known.name;
  }
  fail(ErrorKind::bad_setting, "method ", printable(method), ": expected one of ", names);
}

void set_recipe(const leq_quantize_options& options, const std::filesystem::path& folder,
                QuantizeOptions& job) {
  const bool chosen = options.method != nullptr || options.type != nullptr;
  require(!chosen || options.recipe == nullptr, ErrorKind::bad_setting, "recipe ",
          or_empty(options.recipe), ": says method and type already; leave these out");
  if (chosen) return;
  job.keeps_types = options.recipe == nullptr && options.target_bpw == 0 && holds_codes(folder);
  if (job.keeps_types) return;
  apply_recipe(
      require_recipe(options.recipe == nullptr ? kDefaultRecipe : std::string_view(options.recipe)),
      import_config(folder), job);
  job.fit_windows = job.recipe->fits_windows() && options.samples == 0 && options.length == 0;
}

void set_calibration(const leq_quantize_options& options, CalibrationRequest& calibration) {
  const std::string_view text =
      text_argument(options.calibration, options.calibration_bytes, "calibration");
  require(options.calibration == nullptr || !text.empty(), "calibration: the text is empty");
  const auto invalid = first_invalid_utf8(text);
  require(!invalid, "calibration: the byte at offset ", invalid.value_or(0), " is not UTF-8");
  if (!text.empty()) {
    calibration.text = text;
    calibration.source = "a text of the caller";
  }
  require(options.samples >= 0 && options.length >= 0, ErrorKind::bad_setting, "samples ",
          options.samples, " and length ", options.length, ": expected 0 (the default) or more");
  if (options.samples > 0) calibration.samples = options.samples;
  if (options.length > 0) calibration.length = options.length;
  calibration.seed = static_cast<std::uint64_t>(options.seed);
}

// Chooses the bits of each layer by a search if the recipe requires one.
void set_search(const leq_quantize_options& options, QuantizeOptions& job) {
  const bool searches = job.recipe != nullptr && job.recipe->searches;
  require(options.search_evaluations >= 0 && options.search_windows >= 0, ErrorKind::bad_setting,
          "search_evaluations and search_windows: expected 0 (the default) or more");
  require(searches || options.target_bpw == 0, Setting{"target_bpw"}, ' ', options.target_bpw,
          ": is of the recipe auto");
  require(options.target_bpw >= 0 && options.target_bpw <= 8, Setting{"target_bpw"}, ' ',
          options.target_bpw, ": expected 2 to 8, or 0 for the size of recipe q4");
  if (!searches) return;
  MixedSearch& search = job.search.emplace().search;
  search.text = job.calibration.text.empty() ? std::string(built_in_calibration_text())
                                             : job.calibration.text;
  search.threads = options.threads;
  search.target_bpw = options.target_bpw;
  search.target_four = options.target_bpw == 0;
  if (options.search_evaluations > 0) search.options.evaluations = options.search_evaluations;
  if (options.search_windows > 0) search.windows = options.search_windows;
}

// Whether the caller stops the work, through its callback or its cancel handle.
struct CallerStop {
  const leq_quantize_options& options;
  bool stopped = false;

  bool wanted() { return stopped = stopped || is_cancelled(options.cancel); }
  void report(std::string_view work, std::int64_t done, std::int64_t total) {
    if (options.on_progress == nullptr) return;
    const std::string name(work);
    stopped = options.on_progress(options.user, name.c_str(), done, total) != 0 || stopped;
  }
};

QuantizeOptions job_of(const char* checkpoint, const char* output,
                       const leq_quantize_options& options) {
  QuantizeOptions job;
  check_output(output);
  job.method = options.method == nullptr ? "absmax" : options.method;
  job.type = type_of_method(job.method);
  if (options.type != nullptr) {
    (void)require_scheme(options.type, "type");
    job.type = options.type;
  }
  job.threads = options.threads;
  job.resume = options.restart == 0;
  set_calibration(options, job.calibration);
  set_recipe(options, checkpoint, job);
  set_search(options, job);
  if (options.act != nullptr) {
    const auto act = parse_act_choice(options.act);
    require(act.has_value(), Setting{"act"}, ": unknown inputs ", printable(options.act),
            "; use auto, none, row, g128, g32, tensor or online");
    job.act = *act;
  }
  if (options.judge != 0) {
    job.measure = true;
    job.gate_text = built_in_gate_text();
  }
  return job;
}

leq_quantize_result quantize(const char* checkpoint, const char* output,
                             const leq_quantize_options& options) {
  check_cancel(options.cancel);
  QuantizeOptions job = job_of(checkpoint, output, options);
  CallerStop stopping = {options};
  leq_quantize_result result = {};
  job.stop = [&] { return stopping.wanted(); };
  job.say = [&](const std::string& line) {
    if (options.on_line != nullptr) options.on_line(options.user, spelled(line).c_str());
  };
  job.progress = [&](std::string_view work, std::int64_t done, std::int64_t total,
                     const std::string&) { stopping.report(work, done, total); };
  job.written = [&](const QuantizeResult& written) {
    result.file_bytes = written.file_bytes;
    result.parameters = written.parameters;
    result.bits_per_weight = written.bits_per_weight;
    result.worst_error = written.worst_error;
  };
  if (const auto judged = quantize_checkpoint(checkpoint, output, job).gate) {
    result.judged = 1;
    result.kl = judged->divergence.kl_mean.value;
  }
  return result;
}

}  // namespace
}  // namespace leq::capi

using namespace leq::capi;

extern "C" {

leq_status leq_perplexity(leq_model* model, const char* text, size_t bytes,
                          const leq_perplexity_options* options, leq_perplexity_result* result,
                          leq_error* error) {
  return guarded(error, [&] {
    require_use(result != nullptr, "result is NULL");
    check_struct_size(result->size, "leq_perplexity_result");
    const auto known = options_of(options, "leq_perplexity_options");
    give(perplexity(model_of(model).file(), text_argument(text, bytes, "text"), known), result,
         "leq_perplexity_result");
  });
}

leq_status leq_divergence(leq_model* base, leq_model* model, const char* text, size_t bytes,
                          const leq_perplexity_options* options, leq_divergence_result* result,
                          leq_error* error) {
  return guarded(error, [&] {
    require_use(result != nullptr, "result is NULL");
    check_struct_size(result->size, "leq_divergence_result");
    const auto known = options_of(options, "leq_perplexity_options");
    give(divergence(model_of(base).file(), model_of(model).file(),
                    text_argument(text, bytes, "text"), known),
         result, "leq_divergence_result");
  });
}

leq_status leq_quantize(const char* checkpoint, const char* output,
                        const leq_quantize_options* options, leq_quantize_result* result,
                        leq_error* error) {
  return guarded(error, [&] {
    require_use(checkpoint != nullptr && output != nullptr, "checkpoint or output is NULL");
    if (result != nullptr) check_struct_size(result->size, "leq_quantize_result");
    const auto known = options_of(options, "leq_quantize_options");
    const leq_quantize_result made = quantize(checkpoint, output, known);
    if (result != nullptr) give(made, result, "leq_quantize_result");
  });
}

}  // extern "C"
