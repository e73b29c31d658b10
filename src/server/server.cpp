#include "server/server.h"

#include <algorithm>

#include "base/error.h"

namespace leq {
namespace {

// Threads that answer what takes no time, while all others wait for replies.
constexpr std::size_t kQuickWorkers = 4;

std::string stem(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);
  return name.ends_with(".leq") ? name.substr(0, name.size() - 4) : name;
}

// A model whose template cannot be used still completes texts; `error` says why it does not chat.
std::optional<ChatTemplate> chat_template(const Model& model, const std::string& name,
                                          std::string& error) {
  if (!name.empty()) return ChatTemplate::by_name(name);
  if (model.chat_template().empty()) {
    error = "the model has no chat template";
    return std::nullopt;
  }
  try {
    return ChatTemplate::of_model(model.chat_template(), model.file().name());
  } catch (const Error& refused) {
    error = refused.what();
    return std::nullopt;
  }
}

std::size_t most_requests(const Session& session, const ServerOptions& options) {
  return static_cast<std::size_t>(session.limits().sequences) + options.most_waiting;
}

ApiOptions api_options(const Model& model, const ServerOptions& options) {
  ApiOptions api;
  api.access = options.access;
  api.most_seconds = options.most_seconds;
  api.with_page = options.with_page;
  api.with_metrics = options.with_metrics;
  api.with_slots = options.with_slots;
  api.chat_template = options.chat_template.empty() ? model.chat_template() : options.chat_template;
  return api;
}

}  // namespace

ApiModel Server::api_model(const Model& model, const ServerOptions& options,
                           const ChatTemplate* chat) {
  ApiModel api = {.tokenizer = model.tokenizer()};
  api.vocabulary = static_cast<std::size_t>(model.config().vocab);
  api.name = options.name.empty() ? stem(model.file().name()) : options.name;
  api.chat = chat;
  api.style = reply_style(model.chat_template());
  api.rendering = chat_options(model.tokenizer());
  api.rendering.enable_thinking = options.enable_thinking;
  api.sampling = options.sampling;
  api.sampling.seed = options.seed.value_or(0);
  api.has_seed = options.seed.has_value();
  api.stop.end_tokens = model.end_tokens();
  api.stop.max_tokens = options.max_tokens;
  return api;
}

Server::Server(const Model& model, Session& session, const ServerOptions& options)
    : chat_(chat_template(model, options.chat_template, chat_error_)),
      model_(api_model(model, options, chat_ ? &*chat_ : nullptr)),
      engine_(session, model.tokenizer(), options.engine, most_requests(session, options)),
      api_(model_, model, session.limits(), engine_, api_options(model, options)) {
  require(session.transformer().online().empty() || session.limits().sequences == 1,
          Setting{"sequences"}, ' ', session.limits().sequences,
          ": this model's activations remember one sequence; use ", Setting{"sequences"}, " 1");
  HttpOptions http = options.http;
  http.workers = static_cast<int>(most_requests(session, options) + kQuickWorkers);
  http_ = std::make_unique<HttpServer>(
      http, [this](HttpExchange& exchange) { api_.answer(exchange); }, api_fault_reply);
}

Server::~Server() { stop(0); }

void Server::stop(double seconds) {
  if (!engine_.drain(seconds)) engine_.cancel_all();
  http_->stop();
}

}  // namespace leq
