// Models behind HTTP: engines, paths and connections put together.
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
  std::optional<double> most_seconds;  // that a reply may take
  double ping_seconds = 15;            // in which a stream's client hears something
  bool with_page = true, with_metrics = true, with_slots = true;
};

class Server {
 public:
  // Listens once it is there. `model` and `session` must outlive it, and no one else may use the
  // session. Throws Error on settings that make no sense, and where the address is not to be had.
  Server(const Model& model, Session& session, const ServerOptions& options);
  // The models of a folder; of the options, those of hosts come with each model from the loader.
  Server(const PoolOptions& models, ModelLoader loader, const ServerOptions& options);
  // As stop(0).
  ~Server();

  int port() const { return http_->port(); }
  // What ended the engine of the one model on its own, null while all is well.
  std::optional<std::string> failure() { return models_.failure(); }
  HttpServer::Counts connections() const { return http_->counts(); }
  ModelPool& models() { return models_; }

  // Takes no more requests. Those in work are written to their ends, for at most so many seconds;
  // then they are interrupted. The texts that are kept go to the slots' folder, where there is one.
  void stop(double seconds);

 private:
  void listen(const ServerOptions& options);

  ModelPool models_;
  Api api_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace leq
