// Sessions, replies to token prompts, embeddings, saved states, and requests in JSON.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "base/text.h"
#include "capi/internal.h"
#include "engine/engine.h"
#include "runtime/runtime.h"
#include "sampling/settings.h"

namespace leq::capi {
namespace {

constexpr std::array<std::string_view, 9> kOthers = {
    "seed",         "stop",         "logit_bias",
    "ignore_eos",   "max_tokens",   "max_completion_tokens",
    "mirostat_tau", "mirostat_eta", "n_predict"};

}  // namespace

DrawSettings read_settings(const char* json, const ApiModel& model) {
  const Json tree = parse_request_object(
      json == nullptr ? std::string_view("{}") : std::string_view(json), "the settings");
  const JsonNode body = tree;
  // Unknown names are errors, because a misspelled setting would otherwise be silently ignored.
  for (const JsonNode one : body) {
    const std::string_view name = one.key();
    const bool is_known =
        std::ranges::find(kOthers, name) != kOthers.end() ||
        std::ranges::any_of(kSamplingParameters, [&](const SamplingParameter& parameter) {
          return name == parameter.name ||
                 (!parameter.config_key.empty() && name == parameter.config_key);
        });
    if (!is_known) field_error(printable(name), "is no setting of a reply");
  }
  DrawSettings settings;
  settings.sampling = read_sampling(body, model, settings.has_seed);
  settings.stop = read_stop(body, model);
  if (flag_field(body, "ignore_eos")) settings.banned = settings.stop.end_tokens;
  return settings;
}

namespace {

// The limit of running and queued replies of all threads.
constexpr std::size_t kMaxReplies = std::size_t{1} << 24;

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

Pooling pooling_of(const leq_session_options& options, const Model& model) {
  if (options.pooling == nullptr) return model.embedding().pooling.value_or(Pooling::mean);
  const auto pooling = parse_pooling(options.pooling);
  require(pooling.has_value() && *pooling != Pooling::rank, ErrorKind::bad_setting,
          Setting{"pooling"}, ' ', printable(options.pooling),
          ": expected mean, last, cls or none");
  return *pooling;
}

}  // namespace

OpenModel::OpenModel(const std::string& path, const LoadOptions& options) : model_(path, options) {
  if (model_.has_tokenizer()) api_.emplace(api_model_of(model_));
}

ApiModel OpenModel::api(std::int64_t slots) const {
  (void)model_.tokenizer();  // throws if there is none
  ApiModel api = *api_;
  api.slots = slots;
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
  constexpr std::int64_t kMaxThreads = 1024, kMaxSequences = 4096, kMaxRows = 1 << 16;
  constexpr std::int64_t kMaxContext = 1 << 30;
  SessionRequest request;
  if (options.device != nullptr) request.device.device = options.device;
  request.device.threads = whole(options.threads, kMaxThreads, Setting{"threads"});
  require((options.flags & ~std::uint32_t{LEQ_NO_SPECULATION}) == 0, ErrorKind::bad_setting,
          "flags ", options.flags, ": one that this version does not know");
  choose_drafts(options, model, request);
  request.pooling = pooling_of(options, model);
  RunLimits& limits = request.limits;
  limits.context = whole(options.context, kMaxContext, Setting{"context"});
  limits.sequences = std::max(1, whole(options.sequences, kMaxSequences, Setting{"sequences"}));
  limits.sequence_context = options.sequence_context > 0 ? options.sequence_context
                                                         : std::numeric_limits<std::int64_t>::max();
  if (options.batch_tokens != 0) limits.batch_tokens = options.batch_tokens;
  require(options.logit_rows >= 0 && options.logit_rows <= kMaxRows, ErrorKind::bad_setting,
          "logit_rows ", options.logit_rows, ": expected 0 to ", kMaxRows);
  limits.output_tokens = std::max<std::int64_t>(
      reply_rows(limits.sequences, !request.speculate      ? Drafting::off
                                   : request.drafts_by_mtp ? Drafting::by_model
                                                           : Drafting::from_text),
      options.logit_rows);
  choose_kv_names(options.key_type, options.value_type, model, limits);
  return request;
}

}  // namespace leq::capi

using namespace leq;
using namespace leq::capi;

leq_session::leq_session(std::shared_ptr<const OpenModel> model, const SessionRequest& request)
    : model_(std::move(model)),
      runtime_(
          open_runtime({.model = {model_, &model_->file()},
                        .device = request.device,
                        .limits = [&](const Model&) { return request.limits; },
                        .drafts_by_mtp = [&](const Model&) { return request.drafts_by_mtp; }})),
      pooling_(request.pooling),
      options_({.speculate = request.speculate,
                .find_drafts = request.find_drafts,
                .draft = runtime_.draft_session.get()}) {
  const int sequences = session().limits().sequences;
  require(session().transformer().online().empty() || sequences == 1, Setting{"sequences"}, ' ',
          sequences, ": this model's activations remember one sequence; use ", Setting{"sequences"},
          " 1");
}

void leq_session::empty_caches() {
  for (Session* each : {runtime_.session.get(), runtime_.draft_session.get()}) {
    if (each == nullptr) continue;
    for (int i = 0; i < each->limits().sequences; ++i) each->state().drop(i);
  }
}

// Counts a call's use of a session until its end.
class leq_session::Use {
 public:
  Use(leq_session& session, int& count) : session_(session), count_(count) { ++count_; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    const std::lock_guard lock(session_.mutex_);
    --count_;
    session_.position_ = session_.fed_.size();
    session_.changed_.notify_all();
  }

 private:
  leq_session& session_;
  int& count_;
};

// Waits until no other thread feeds. A callback would wait for its own call.
void leq_session::await_feeder(std::unique_lock<std::mutex>& lock) {
  require_use(feeding_ == 0 || feeder_ != std::this_thread::get_id(),
              "a callback uses the session that calls it");
  changed_.wait(lock, [&] { return feeding_ == 0; });
}

void leq_session::with_engine(const std::function<void(EngineThread&)>& work) {
  std::unique_lock lock(mutex_);
  await_feeder(lock);
  if (!engine_) {
    empty_caches();
    fed_.clear();
    position_ = 0;
    engine_ = std::make_unique<EngineThread>(session(), model().tokenizer(), options_, kMaxReplies);
  }
  const Use use(*this, users_);
  lock.unlock();
  work(*engine_);
}

void leq_session::with_tokens(const std::function<void(std::vector<Token>&)>& work) {
  std::unique_lock lock(mutex_);
  await_feeder(lock);
  require_use(users_ == 0,
              "another thread writes replies on this session: feed tokens on one of "
              "your own");
  if (engine_) {
    engine_.reset();
    empty_caches();
  }
  feeder_ = std::this_thread::get_id();
  const Use use(*this, feeding_);
  lock.unlock();
  work(fed_);
}

std::size_t leq_session::position() const {
  const std::lock_guard lock(mutex_);
  return position_;
}

namespace leq::capi {
namespace {

// Interval at which a waiting caller's callback and cancel handle are polled.
constexpr double kPollSeconds = 0.05;

// Settings shared by all replies of a call.
struct ReplySettings : DrawSettings {
  std::shared_ptr<const Grammar> grammar;
  std::optional<int> logprobs;
  bool receipts = false;
};

ReplySettings reply_settings(const leq_generate_options& options, const ApiModel& api) {
  ReplySettings wanted = {read_settings(options.settings, api), nullptr, std::nullopt};
  wanted.receipts = options.receipts != 0;
  require(!wanted.receipts || options.grammar == nullptr, ErrorKind::bad_setting,
          "receipts: hold no grammar, without which a reply cannot be generated again");
  // 32 bits, as in the tools: easy to retype.
  if (!wanted.has_seed) wanted.sampling.seed = std::random_device()();
  require(options.max_tokens >= 0, marked_field("max_tokens"), ' ', options.max_tokens,
          ": expected 0 (no limit) or more");
  if (options.max_tokens > 0) wanted.stop.max_tokens = options.max_tokens;
  if (options.grammar != nullptr) {
    wanted.grammar = checked(options.grammar, "grammar").grammar;
  }
  require(options.logprobs >= 0 && options.logprobs <= api.most_logprobs, ErrorKind::bad_setting,
          "logprobs ", options.logprobs, ": expected 0 to ", api.most_logprobs);
  if (options.logprobs > 0) wanted.logprobs = options.logprobs;
  return wanted;
}

// Storage of one reply that a leq_reply refers to.
struct KeptReply {
  EngineReply reply;
  std::string stop_string, failure, receipt;
  std::vector<std::uint64_t> digests;
  std::vector<float> logprobs;
  std::vector<Token> top_ids;
  std::vector<float> top_logprobs;

  void add(std::span<const TokenLogprobs> tokens, std::size_t top) {
    for (const TokenLogprobs& token : tokens) {
      logprobs.push_back(token.logprob);
      for (std::size_t i = 0; i < top; ++i) {
        const bool there = i < token.top.size();
        top_ids.push_back(there ? token.top[i].id : kNoToken);
        top_logprobs.push_back(there ? token.top[i].logprob : -INFINITY);
      }
    }
  }
};

}  // namespace
}  // namespace leq::capi

struct leq_replies : HandleOf<HandleKind::replies> {
  explicit leq_replies(std::size_t count) : all(count) {}
  std::vector<KeptReply> all;
  std::size_t top = 0;
  std::uint64_t seed = 0;
};

namespace leq::capi {
namespace {

// One call of leq_generate: submits its requests and collects the replies.
class ReplyCall {
 public:
  ReplyCall(EngineThread& engine, const leq_generate_options& options, leq_replies& replies)
      : engine_(engine), options_(options), replies_(replies) {}

  void run(EngineCall call) {
    const auto mailbox = call.mailbox;
    ids_ = engine_.submit(std::move(call));
    try {
      while (ended_ < replies_.all.size()) {
        std::vector<ReplyUpdate> updates = mailbox->take(kPollSeconds);
        if (updates.empty()) poll(nullptr);
        for (ReplyUpdate& one : updates) take(std::move(one));
      }
    } catch (...) {
      engine_.cancel(ids_);
      throw;
    }
  }

 private:
  // Cancels the replies if the caller's callback or cancel handle requests it.
  void poll(const leq_piece* piece) {
    if (cancelled_) return;
    const bool stop =
        is_cancelled(options_.cancel) ||
        (options_.on_piece != nullptr && options_.on_piece(options_.user, piece) != 0);
    if (!stop) return;
    cancelled_ = true;
    engine_.cancel(ids_);
  }

  void take(ReplyUpdate update) {
    KeptReply& kept = replies_.all[update.reply];
    const std::size_t before = kept.logprobs.size();
    kept.add(update.logprobs, replies_.top);
    leq_piece piece = {};
    piece.size = sizeof piece;
    piece.reply = update.reply;
    piece.text = update.text.c_str();
    piece.text_bytes = update.text.size();
    piece.tokens = update.tokens.data();
    piece.token_count = update.tokens.size();
    if (replies_.top > 0) piece.logprobs = kept.logprobs.data() + before;
    const bool has_more = !update.text.empty() || !update.tokens.empty();
    poll(has_more ? &piece : nullptr);
    if (!update.end) return;
    kept.reply = std::move(*update.end);
    kept.digests = std::move(update.digests);
    kept.stop_string = kept.reply.stop_string;
    if (kept.reply.error) kept.failure = kept.reply.error->what();
    ++ended_;
  }

  EngineThread& engine_;
  const leq_generate_options& options_;
  leq_replies& replies_;
  std::vector<RequestId> ids_;
  std::size_t ended_ = 0;
  bool cancelled_ = false;
};

EngineCall engine_call(const ReplySettings& wanted,
                       std::span<const std::span<const Token>> prompts) {
  EngineCall call;
  call.top_logprobs = wanted.logprobs;
  call.digests = wanted.receipts;
  for (const std::span<const Token> prompt : prompts) {
    EngineRequest request;
    request.prompt.assign(prompt.begin(), prompt.end());
    request.sampling = wanted.sampling;
    request.banned = wanted.banned;
    request.stop = wanted.stop;
    request.grammar = wanted.grammar;
    call.requests.push_back(std::move(request));
  }
  return call;
}

std::vector<std::span<const Token>> prompts_of(const leq_token* const* prompts,
                                               const std::size_t* counts, std::size_t count,
                                               std::int64_t context) {
  constexpr std::size_t kMaxPrompts = std::size_t{1} << 20;
  require_use(prompts != nullptr && counts != nullptr, "prompts or counts is NULL");
  if (count == 0 || count > kMaxPrompts) {
    misuse("prompt_count " + std::to_string(count) + ": expected 1 to " +
           std::to_string(kMaxPrompts));
  }
  std::vector<std::span<const Token>> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(tokens_argument(prompts[i], counts[i]));
    if (std::ssize(all.back()) < context) continue;
    throw StatusError(LEQ_CONTEXT_FULL,
                      "prompts[" + std::to_string(i) + "] has " + std::to_string(counts[i]) +
                          " tokens, which leaves no room for a reply in a context of " +
                          std::to_string(context) + "; open the session with a larger context");
  }
  return all;
}

void generate(leq_session& session, std::span<const std::span<const Token>> prompts,
              const leq_generate_options& options, leq_replies& replies) {
  check_cancel(options.cancel);
  const ApiModel api = session.api();
  const ReplySettings wanted = reply_settings(options, api);
  if (wanted.receipts) require_receipts(session);
  replies.top = static_cast<std::size_t>(options.logprobs);
  replies.seed = wanted.sampling.seed;
  session.with_engine([&](EngineThread& engine) {
    ReplyCall(engine, options, replies).run(engine_call(wanted, prompts));
  });
  if (!wanted.receipts) return;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    KeptReply& kept = replies.all[i];
    kept.receipt = receipt_of(session, wanted, prompts[i], kept.reply, kept.digests);
  }
}

leq_reply reply_of(const KeptReply& kept, const leq_replies& replies) {
  constexpr int32_t kStops[] = {LEQ_STOP_NONE,        LEQ_STOP_END_TOKEN,    LEQ_STOP_STRING,
                                LEQ_STOP_TOKEN_LIMIT, LEQ_STOP_CONTEXT_FULL, LEQ_STOP_INTERRUPTED,
                                LEQ_STOP_FAILED};
  const EngineReply& from = kept.reply;
  leq_reply reply = {};
  reply.stop = kStops[static_cast<std::size_t>(from.stopped)];
  reply.text = from.text.c_str();
  reply.text_bytes = from.text.size();
  reply.tokens = from.tokens.data();
  reply.token_count = from.tokens.size();
  reply.stop_string = kept.stop_string.c_str();
  reply.failure = kept.failure.c_str();
  reply.cached_tokens = from.cached_tokens;
  reply.fed_tokens = from.fed_tokens;
  reply.prompt_seconds = from.prompt_seconds;
  reply.reply_seconds = from.reply_seconds;
  reply.seed = replies.seed;
  reply.receipt = kept.receipt.empty() ? nullptr : kept.receipt.c_str();
  if (replies.top == 0) return reply;
  reply.logprobs = kept.logprobs.data();
  reply.logprob_count = kept.logprobs.size();
  reply.top_count = replies.top;
  reply.top_ids = kept.top_ids.data();
  reply.top_logprobs = kept.top_logprobs.data();
  return reply;
}

std::vector<float> embedding(leq_session& session, std::span<const Token> tokens) {
  EmbeddedText text = {.tokens = {tokens.begin(), tokens.end()}, .pooling = session.pooling()};
  require(!tokens.empty(), "tokens: an embedding needs one or more");
  require(session.pooling() != Pooling::rank, session.model().file().name(),
          ": ranks documents and has no embeddings; choose one with ", Setting{"pooling"});
  if (std::ssize(tokens) > session.context()) {
    throw StatusError(LEQ_CONTEXT_FULL, "a text of " + std::to_string(tokens.size()) +
                                            " tokens does not fit a context of " +
                                            std::to_string(session.context()));
  }
  session.with_engine([&](EngineThread& engine) { feed_text(engine, text); });
  return std::move(text.values);
}

std::size_t save_state(leq_session& session, std::span<const Token> tokens, const char* path) {
  require_no_input(path, std::array<std::filesystem::path, 1>{session.model().file().name()});
  SavedPrefix saved;
  session.with_engine([&](EngineThread& engine) {
    engine.with_idle_sequence([&](Engine& one) { saved = one.save_prefix(tokens); });
  });
  PrefixWriter file(path, prefix_owner(session.model(), session.session()));
  if (!saved.tokens.empty()) file.add(saved);
  file.commit();
  return saved.tokens.size();
}

std::size_t load_state(leq_session& session, const char* path) {
  const PrefixFile file(path);
  const std::string reason = file->reason_against(prefix_owner(session.model(), session.session()));
  require(reason.empty(), path, ": ", reason);
  std::size_t tokens = 0;
  for (std::size_t i = file->size(); i-- > 0;) {
    const SavedPrefix saved = file->read(i);
    bool fits = false;
    session.with_engine([&](EngineThread& engine) {
      engine.with_idle_sequence([&](Engine& one) { fits = one.load_prefix(saved, path); });
    });
    tokens = saved.tokens.size();
    if (!fits) {
      throw StatusError(LEQ_CONTEXT_FULL, std::string(path) + ": its " + std::to_string(tokens) +
                                              " tokens do not fit the context");
    }
  }
  return tokens;
}

// Requests in the JSON of the OpenAI API, answered as by leq-server but without a server.

constexpr std::string_view kData = "data: ";
constexpr std::string_view kDone = "[DONE]";

// Passes a reply or the events of a stream to the caller of a C function.
class CallExchange : public HttpExchange {
 public:
  explicit CallExchange(const leq_request_options& options) : options_(options) {}

  const HttpRequest& request() const override { return request_; }
  void reply(const HttpReply& reply) override { reply_ = reply.body; }
  bool begin_stream(const HttpReply&) override { return client_is_there(); }
  bool write(std::string_view piece) override {
    held_ += piece;
    for (std::size_t end; (end = held_.find("\n\n")) != std::string::npos;) {
      send(std::string_view(held_).substr(0, end));
      held_.erase(0, end + 2);
    }
    return client_is_there();
  }
  bool end_stream() override { return !ended_; }
  bool client_is_there() override {
    ended_ = ended_ || is_cancelled(options_.cancel) || call(nullptr, 0);
    return !ended_;
  }

  const std::string& reply() const { return reply_; }
  bool ended_by_caller() const { return ended_; }

 private:
  void send(std::string_view event) {
    if (ended_ || !event.starts_with(kData)) return;
    event.remove_prefix(kData.size());
    if (event != kDone) ended_ = call(std::string(event).c_str(), event.size());
  }
  bool call(const char* json, std::size_t bytes) {
    return options_.on_event != nullptr && options_.on_event(options_.user, json, bytes) != 0;
  }

  const leq_request_options& options_;
  HttpRequest request_;
  std::string held_, reply_;
  bool ended_ = false;
};

// The reply's JSON; nullopt for a stream.
std::optional<std::string> answer(leq_session& session, CallStyle style, std::string_view request,
                                  const leq_request_options& options) {
  check_cancel(options.cancel);
  const ApiModel api = session.api();
  require(!is_chat(style) || api.chat != nullptr, api.name, ": ", api.chat_error);
  const Json tree = parse_request_object(request);
  GenerationCall call = read_generation_call(style, tree, api);
  const bool streams = call.stream;
  require_use(!streams || options.on_event != nullptr, "a stream needs on_event");
  CallExchange exchange(options);
  const auto interrupted = [&] {
    require(!exchange.ended_by_caller(), ErrorKind::interrupted, "the caller ended the reply");
  };
  try {
    session.with_engine([&](EngineThread& engine) {
      answer_generation(exchange, std::move(call), api, engine, {});
    });
  } catch (const Error&) {
    interrupted();
    throw;
  }
  interrupted();
  if (streams) return std::nullopt;
  return exchange.reply();
}

leq_status respond(leq_session* session, CallStyle style, const char* request, std::size_t bytes,
                   const leq_request_options* options, char** reply, leq_error* error) {
  if (reply != nullptr) *reply = nullptr;
  return guarded(error, [&] {
    require_use(reply != nullptr, "reply is NULL");
    const auto known = options_of(options, "leq_request_options");
    const auto text =
        answer(session_of(session), style, text_argument(request, bytes, "request"), known);
    if (text) *reply = new_text(*text);
  });
}

}  // namespace
}  // namespace leq::capi

extern "C" {

leq_status leq_session_new(leq_model* model, const leq_session_options* options,
                           leq_session** session, leq_error* error) {
  if (session != nullptr) *session = nullptr;
  return guarded(error, [&] {
    require_use(session != nullptr, "session is NULL");
    const Model& file = model_of(model).file();
    const auto known = options_of(options, "leq_session_options");
    *session = new leq_session(model->model, session_request(known, file));
  });
}

void leq_session_close(leq_session* session) { close_handle(session); }

leq_status leq_generate(leq_session* session, const leq_token* const* prompts, const size_t* counts,
                        size_t prompt_count, const leq_generate_options* options,
                        leq_replies** replies, leq_error* error) {
  if (replies != nullptr) *replies = nullptr;
  return guarded(error, [&] {
    require_use(replies != nullptr, "replies is NULL");
    leq_session& live = session_of(session);
    const auto known = options_of(options, "leq_generate_options");
    const auto all = prompts_of(prompts, counts, prompt_count, live.context());
    auto made = std::make_unique<leq_replies>(all.size());
    generate(live, all, known, *made);
    *replies = made.release();
    for (const KeptReply& kept : (*replies)->all) {
      if (kept.reply.error) throw *kept.reply.error;
    }
  });
}

size_t leq_replies_count(const leq_replies* replies) {
  return is_valid(replies) ? replies->all.size() : 0;
}

void leq_replies_free(leq_replies* replies) { close_handle(replies); }

leq_status leq_replies_at(const leq_replies* replies, size_t index, leq_reply* reply,
                          leq_error* error) {
  return guarded(error, [&] {
    checked(replies, "replies");
    require_use(reply != nullptr, "reply is NULL");
    if (index >= replies->all.size()) misuse("index " + std::to_string(index));
    give(reply_of(replies->all[index], *replies), reply, "leq_reply");
  });
}

leq_status leq_embed(leq_session* session, const leq_token* tokens, size_t count, float* numbers,
                     size_t width, leq_error* error) {
  return guarded(error, [&] {
    leq_session& live = session_of(session);
    require_use(numbers != nullptr, "numbers is NULL");
    const auto want = static_cast<std::size_t>(live.model().config().width);
    if (width != want) {
      misuse("width " + std::to_string(width) + ": expected the model's, " + std::to_string(want));
    }
    const std::vector<float> pooled = embedding(live, tokens_argument(tokens, count));
    std::ranges::copy(pooled, numbers);
  });
}

leq_status leq_save_state(leq_session* session, const leq_token* tokens, size_t count,
                          const char* path, size_t* kept, leq_error* error) {
  if (kept != nullptr) *kept = 0;
  return guarded(error, [&] {
    require_use(path != nullptr, "path is NULL");
    leq_session& live = session_of(session);
    const std::size_t saved = save_state(live, tokens_argument(tokens, count), path);
    if (kept != nullptr) *kept = saved;
  });
}

leq_status leq_load_state(leq_session* session, const char* path, size_t* kept, leq_error* error) {
  if (kept != nullptr) *kept = 0;
  return guarded(error, [&] {
    require_use(path != nullptr, "path is NULL");
    const std::size_t loaded = load_state(session_of(session), path);
    if (kept != nullptr) *kept = loaded;
  });
}

leq_status leq_chat_completion(leq_session* session, const char* request, size_t bytes,
                               const leq_request_options* options, char** reply, leq_error* error) {
  return respond(session, CallStyle::chat, request, bytes, options, reply, error);
}

leq_status leq_completion(leq_session* session, const char* request, size_t bytes,
                          const leq_request_options* options, char** reply, leq_error* error) {
  return respond(session, CallStyle::text, request, bytes, options, reply, error);
}

}  // extern "C"
