#include "server/server.h"

#include <exception>
#include <utility>

namespace leq {
namespace {

// Threads reserved for quick requests when all other threads wait for replies.
constexpr std::size_t kQuickWorkers = 4;

ApiOptions api_options(const ServerOptions& options) {
  ApiOptions api;
  api.access = options.access;
  api.most_seconds = options.most_seconds;
  api.ping_seconds = options.ping_seconds;
  api.with_page = options.with_page;
  api.with_metrics = options.with_metrics;
  api.with_slots = options.with_slots;
  return api;
}

}  // namespace

Server::Server(const Model& model, Session& session, const ServerOptions& options)
    : models_(model, session, options), api_(models_, api_options(options)) {
  listen(options);
}

Server::Server(const PoolOptions& models, ModelLoader loader, const ServerOptions& options)
    : models_(models, std::move(loader)), api_(models_, api_options(options)) {
  listen(options);
}

void Server::listen(const ServerOptions& options) {
  HttpOptions http = options.http;
  http.workers = static_cast<int>(models_.most_requests() + kQuickWorkers);
  http_ = std::make_unique<HttpServer>(
      http, [this](HttpExchange& exchange) { api_.answer(exchange); }, api_fault_reply,
      [this](const HttpRequest& request) { return api_.check_head(request); });
}

Server::~Server() {
  try {
    stop(0);
  } catch (const std::exception&) {  // out of memory; the destructors stop the threads
  }
}

void Server::stop(double seconds) {
  models_.stop(seconds);
  if (http_) http_->stop();
}

}  // namespace leq
