// Perplexity and KL divergence; each run opens sessions of its own.
#include "base/text.h"
#include "base/thread_pool.h"
#include "capi/handles.h"
#include "eval/divergence.h"
#include "eval/perplexity.h"
#include "eval/wikitext.h"

namespace leq::capi {
namespace {

ProtocolRequest protocol_of(const leq_perplexity_options& options) {
  ProtocolRequest request;
  if (options.protocol != nullptr) request.protocol = options.protocol;
  if (options.join != nullptr) request.join = options.join;
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
      : settings(resolve_protocol(protocol_of(options), model.config().context)) {
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
    run.progress = [&options, work, total = std::ssize(windows)](std::int64_t done, double) {
      const bool stop = is_cancelled(options.cancel) ||
                        (options.on_progress != nullptr &&
                         options.on_progress(options.user, work, done, total) != 0);
      require(!stop, ErrorKind::interrupted, work, ": ended by the caller after ", done, " of ",
              total, " windows");
    };
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

}  // extern "C"
