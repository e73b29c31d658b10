// The HTTP server for models: connects engines, endpoints and connections. A table maps paths to
// handlers (docs/server.md).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/access.h"
#include "server/http_server.h"
#include "server/model_pool.h"

namespace leq {

struct ServerOptions : HostOptions {
  HttpOptions http;  // `workers` is overwritten by the server
  AccessRules access;
  std::optional<double> most_seconds;  // time limit of a reply
  double ping_seconds = 15;            // longest interval without data in a stream
  bool with_page = true, with_metrics = true, with_slots = true;
  bool logs_requests = false;  // one line for each, to `say`; no texts and no keys
};

class Server {
 public:
  // Listens once it is constructed. `model` and `session` must outlive it, and the session must not
  // be used by other objects. Throws Error on invalid settings or if the address cannot be bound.
  Server(const Model& model, Session& session, const ServerOptions& options);
  // Serves the models of a folder; the loader's host options replace those in `options`.
  Server(const PoolOptions& models, ModelLoader loader, const ServerOptions& options);
  // Calls stop(0).
  ~Server();

  int port() const { return http_->port(); }
  // Why the engine of the only model ended unexpectedly; nullopt while it runs.
  std::optional<std::string> failure() { return models_.failure(); }
  HttpServer::Counts connections() const { return http_->counts(); }
  ModelPool& models() { return models_; }

  // Stops accepting requests. Running replies may finish within `seconds`; then they are
  // interrupted. Writes the prefix cache's texts to the slot folder, if there is one.
  void stop(double seconds);

 private:
  struct Route;
  static std::span<const Route> routes();
  static const Route& route_of(const HttpRequest& request);
  void listen();
  // The handler for HttpServer; replies to every request, with an error if necessary. Thread-safe.
  void answer(HttpExchange& exchange);
  // Rejects unauthorized requests before their body is read.
  std::optional<HttpReply> check_head(const HttpRequest& request) const;
  void answer_checked(HttpExchange& exchange);
  void log(const HttpRequest& request, int status, double seconds, const RequestFacts& facts) const;
  void answer_with_model(HttpExchange& exchange, const Route& route);

  void page(HttpExchange& exchange);
  void health(HttpExchange& exchange);
  void list_models(HttpExchange& exchange);
  void one_model(HttpExchange& exchange);
  void ollama_models(HttpExchange& exchange);
  void ollama_version(HttpExchange& exchange);
  void load_model(HttpExchange& exchange);
  void unload_model(HttpExchange& exchange);
  // A request without a question, which only loads or unloads; false if it is another one.
  bool ollama_only_loads(HttpExchange& exchange, JsonNode body, const std::string& model);
  std::vector<Json> model_list();
  void slots(HttpExchange& exchange);
  void metrics(HttpExchange& exchange);
  void no_stored_response(HttpExchange& exchange);

  ServerOptions options_;
  ModelPool models_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace leq
