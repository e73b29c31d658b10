#include "server/server.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "engine/prefix_file.h"
#include "server/api_model.h"

namespace leq {
namespace {

// Threads that answer what takes no time, while all others wait for replies.
constexpr std::size_t kQuickWorkers = 4;

std::size_t most_requests(const Session& session, const ServerOptions& options) {
  return static_cast<std::size_t>(session.limits().sequences) + options.most_waiting;
}

std::optional<SlotFiles> slot_files(const Model& model, const Session& session,
                                    const ServerOptions& options) {
  if (!options.slot_folder) return std::nullopt;
  const RunLimits& limits = session.limits();
  return SlotFiles(*options.slot_folder,
                   {model.file().fingerprint(), limits.key_type, limits.value_type});
}

ApiOptions api_options(const Model& model, const Session& session, const ServerOptions& options) {
  ApiOptions api;
  api.access = options.access;
  api.most_seconds = options.most_seconds;
  api.ping_seconds = options.ping_seconds;
  api.with_page = options.with_page;
  api.with_metrics = options.with_metrics;
  api.with_slots = options.with_slots;
  api.slot_files = slot_files(model, session, options);
  api.chat_template = options.chat_template.empty() ? model.chat_template() : options.chat_template;
  return api;
}

}  // namespace

ApiModel Server::api_model(const Model& model, const RunLimits& limits,
                           const ServerOptions& options, const ChatTemplate* chat,
                           const std::string& chat_error) {
  ApiModel api = api_model_of(model, chat, chat_error, options.chat_template.empty());
  api.slots = limits.sequences;
  if (!options.name.empty()) api.name = options.name;
  api.rendering.enable_thinking = options.enable_thinking;
  api.sampling = options.sampling;
  api.sampling.seed = options.seed.value_or(0);
  api.has_seed = options.seed.has_value();
  api.thought_tokens = options.thought_tokens;
  api.thought_words = options.thought_words;
  api.stop.max_tokens = options.max_tokens;
  return api;
}

Server::Server(const Model& model, Session& session, const ServerOptions& options)
    : say_(options.say),
      slot_files_(slot_files(model, session, options)),
      chat_(chat_template_of(model, options.chat_template, chat_error_)),
      model_(api_model(model, session.limits(), options, chat_ ? &*chat_ : nullptr, chat_error_)),
      engine_(session, model.tokenizer(), options.engine, most_requests(session, options)),
      api_(model_, model, session.limits(), engine_, api_options(model, session, options)) {
  model_.grammars = &grammars_;
  require(session.transformer().online().empty() || session.limits().sequences == 1,
          Setting{"sequences"}, ' ', session.limits().sequences,
          ": this model's activations remember one sequence; use ", Setting{"sequences"}, " 1");
  read_kept();
  HttpOptions http = options.http;
  http.workers = static_cast<int>(most_requests(session, options) + kQuickWorkers);
  http_ = std::make_unique<HttpServer>(
      http, [this](HttpExchange& exchange) { api_.answer(exchange); }, api_fault_reply,
      [this](const HttpRequest& request) { return api_.check_head(request); });
}

Server::~Server() {
  try {
    stop(0);
  } catch (const std::exception&) {  // no memory for an orderly end: the members end their threads
  }
}

void Server::stop(double seconds) {
  if (!engine_.drain(seconds)) engine_.cancel_all();
  write_kept();
  http_->stop();
}

// What is kept only saves time: without it the server starts and ends as well.
void Server::read_kept() {
  if (!slot_files_) return;
  const std::filesystem::path path = slot_files_->kept_texts();
  engine_.between_steps([&](Engine& engine) {
    KeptTexts kept;
    try {
      kept = read_kept_texts(path, engine, slot_files_->owner());
    } catch (const Error& error) {
      say_(std::string(error.marked()) + "; its texts are fed as usual");
    }
    if (kept.texts == 0) return;
    say_(path.string() + ": " + with_commas(kept.tokens) + " tokens of " + with_commas(kept.texts) +
         " texts need not be fed again");
  });
}

void Server::write_kept() {
  if (!slot_files_) return;
  const SlotFiles files = *std::exchange(slot_files_, std::nullopt);
  try {
    engine_.with_idle_sequence([&](Engine& engine) {
      const KeptTexts kept = write_kept_texts(files.kept_texts(), engine, files.owner());
      if (kept.texts == 0) return;
      say_(files.kept_texts().string() + ": " + with_commas(kept.tokens) + " tokens of " +
           with_commas(kept.texts) + " texts are kept for the next start");
    });
  } catch (const Error& error) {
    say_(std::string(error.marked()) + "; the next start begins without the texts of this run");
  }
}

}  // namespace leq
