#include "capi/live_session.h"

#include <limits>
#include <utility>

#include "base/text.h"
#include "generate/settings.h"
#include "runtime/run_limits.h"
#include "server/api_model.h"

namespace leq::capi {
namespace {

// The limit of running and queued replies of all threads.
constexpr std::size_t kMostReplies = std::size_t{1} << 24;

int whole(std::int64_t value, std::int64_t most, Setting setting) {
  require(value >= 0 && value <= most, setting, ' ', value, ": expected 0 (the default) to ", most);
  return static_cast<int>(value);
}

void choose_drafts(const leq_session_options& options, const Model& model,
                   SessionRequest& request) {
  const std::string_view how = options.speculate == nullptr ? "auto" : options.speculate;
  const bool known = how == "auto" || how == "ngram" || how == "mtp" || how == "off";
  require(known, Setting{"speculate"}, ' ', printable(how), ": expected auto, ngram, mtp or off");
  require(how != "mtp" || model.mtp() != nullptr, Setting{"speculate"},
          " mtp: ", model.file().name(), " has no head of multi-token prediction; use auto");
  request.speculate = how != "off" && (options.flags & LEQ_NO_SPECULATION) == 0;
  request.find_drafts = how != "mtp";
  request.drafts_by_mtp = request.speculate && how != "ngram" && model.mtp() != nullptr;
}

}  // namespace

OpenModel::OpenModel(const std::string& path, const LoadOptions& options)
    : model_(path, options), chat_(chat_template_of(model_, "", chat_error_)) {}

ApiModel OpenModel::api(std::int64_t slots) const {
  ApiModel api = api_model_of(model_, chat_ ? &*chat_ : nullptr, chat_error_, true);
  api.slots = slots;
  api.grammars = &grammars_;
  api.sampling = choose_sampling({}, model_.generation().sampling).settings;
  return api;
}

void choose_kv_names(const char* key_type, const char* value_type, const Model& model,
                     RunLimits& limits) {
  const auto type = [](const char* name, Setting setting) -> std::optional<KvType> {
    if (name == nullptr) return std::nullopt;
    return parse_kv_type(name, setting);
  };
  choose_kv_types(type(key_type, Setting{"key_type"}), type(value_type, Setting{"value_type"}),
                  model, limits);
}

SessionRequest session_request(const leq_session_options& options, const Model& model) {
  constexpr std::int64_t kMostThreads = 1024, kMostSequences = 4096, kMostRows = 1 << 16;
  constexpr std::int64_t kMostContext = 1 << 30;
  SessionRequest request;
  if (options.device != nullptr) request.device.device = options.device;
  request.device.threads = whole(options.threads, kMostThreads, Setting{"threads"});
  require((options.flags & ~std::uint32_t{LEQ_NO_SPECULATION}) == 0, ErrorKind::bad_setting,
          "flags ", options.flags, ": one that this version does not know");
  choose_drafts(options, model, request);
  RunLimits& limits = request.limits;
  limits.context = whole(options.context, kMostContext, Setting{"context"});
  limits.sequences = std::max(1, whole(options.sequences, kMostSequences, Setting{"sequences"}));
  limits.sequence_context = options.sequence_context > 0 ? options.sequence_context
                                                         : std::numeric_limits<std::int64_t>::max();
  if (options.batch_tokens != 0) limits.batch_tokens = options.batch_tokens;
  require(options.logit_rows >= 0 && options.logit_rows <= kMostRows, ErrorKind::bad_setting,
          "logit_rows ", options.logit_rows, ": expected 0 to ", kMostRows);
  limits.output_tokens = std::max<std::int64_t>(
      reply_rows(limits.sequences, !request.speculate      ? Drafting::off
                                   : request.drafts_by_mtp ? Drafting::by_model
                                                           : Drafting::from_text),
      options.logit_rows);
  choose_kv_names(options.key_type, options.value_type, model, limits);
  return request;
}

LiveSession::LiveSession(std::shared_ptr<const OpenModel> model, const SessionRequest& request)
    : model_(std::move(model)),
      runtime_(
          open_runtime({.model = {model_, &model_->file()},
                        .device = request.device,
                        .limits = [&](const Model&) { return request.limits; },
                        .drafts_by_mtp = [&](const Model&) { return request.drafts_by_mtp; }})),
      options_({.speculate = request.speculate,
                .find_drafts = request.find_drafts,
                .draft = runtime_.draft_session.get()}) {
  const int sequences = session().limits().sequences;
  require(session().transformer().online().empty() || sequences == 1, Setting{"sequences"}, ' ',
          sequences, ": this model's activations remember one sequence; use ", Setting{"sequences"},
          " 1");
}

EngineThread& LiveSession::enter_engine() {
  const std::lock_guard lock(mutex_);
  if (!engine_) {
    empty_caches();
    fed_.clear();
    engine_ =
        std::make_unique<EngineThread>(session(), model().tokenizer(), options_, kMostReplies);
  }
  ++users_;
  return *engine_;
}

void LiveSession::empty_caches() {
  for (Session* each : {runtime_.session.get(), runtime_.draft_session.get()}) {
    if (each == nullptr) continue;
    for (int i = 0; i < each->limits().sequences; ++i) each->state().drop(i);
  }
}

void LiveSession::leave_engine() {
  const std::lock_guard lock(mutex_);
  --users_;
}

void LiveSession::with_engine(const std::function<void(EngineThread&)>& work) {
  EngineThread& engine = enter_engine();
  try {
    work(engine);
  } catch (...) {
    leave_engine();
    throw;
  }
  leave_engine();
}

void LiveSession::with_tokens(const std::function<void(std::vector<Token>&)>& work) {
  const std::lock_guard lock(mutex_);
  require_use(users_ == 0,
              "another thread writes replies on this session: feed tokens on one of "
              "your own");
  if (engine_) {
    engine_.reset();
    empty_caches();
  }
  work(fed_);
}

std::size_t LiveSession::fed_tokens() const {
  const std::lock_guard lock(mutex_);
  return fed_.size();
}

}  // namespace leq::capi
