// The HTTP server of models: connects engines, endpoints and connections.
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
  HttpOptions http;  // `workers` is set by the server
  AccessRules access;
  std::optional<double> most_seconds;  // time limit of a reply
  double ping_seconds = 15;            // longest silence of a stream
  bool with_page = true, with_metrics = true, with_slots = true;
};

class Server {
 public:
  // Listens once it is constructed. `model` and `session` must outlive it, and no other object may
  // use the session. Throws Error on invalid settings, and where the address cannot be bound.
  Server(const Model& model, Session& session, const ServerOptions& options);
  // Serves the models of a folder; the host options in `options` are replaced by the loader's.
  Server(const PoolOptions& models, ModelLoader loader, const ServerOptions& options);
  // Calls stop(0).
  ~Server();

  int port() const { return http_->port(); }
  // Why the engine of the only model ended unexpectedly; nullopt while it runs.
  std::optional<std::string> failure() { return models_.failure(); }
  HttpServer::Counts connections() const { return http_->counts(); }
  ModelPool& models() { return models_; }

  // Accepts no more requests. Running replies may finish within so many seconds and are interrupted
  // then. The prefix cache's texts are written to the slot folder, if there is one.
  void stop(double seconds);

 private:
  void listen(const ServerOptions& options);

  ModelPool models_;
  Api api_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace leq
