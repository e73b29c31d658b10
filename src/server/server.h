// The HTTP server for models: connects engines, endpoints and connections.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/access.h"
#include "server/api.h"
#include "server/hosted_model.h"
#include "server/http_server.h"
#include "server/model_pool.h"

namespace leq {

struct ServerOptions : HostOptions {
  HttpOptions http;  // `workers` is overwritten by the server
  AccessRules access;
  std::optional<double> most_seconds;  // time limit of a reply
  double ping_seconds = 15;            // longest interval without data in a stream
  bool with_page = true, with_metrics = true, with_slots = true;
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
  void listen(const ServerOptions& options);

  ModelPool models_;
  Api api_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace leq
