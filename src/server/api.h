// The server's HTTP API: a table that maps paths to handlers (docs/server.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/access.h"
#include "server/http_server.h"
#include "server/model_api.h"
#include "server/model_pool.h"

namespace leq {

struct ApiOptions {
  AccessRules access;
  std::optional<double> most_seconds;  // time limit of a reply
  double ping_seconds = 15;            // longest interval without data in a stream
  bool with_page = true;
  bool with_metrics = true;
  bool with_slots = true;
};

class Api {
 public:
  // `models` must outlive it.
  Api(ModelPool& models, const ApiOptions& options) : models_(models), options_(options) {}

  // The handler for HttpServer; replies to every request, with an error if necessary. Thread-safe.
  void answer(HttpExchange& exchange) const;
  // The HttpHeadCheck of an HttpServer: rejects unauthorized requests before their body is read.
  std::optional<HttpReply> check_head(const HttpRequest& request) const;

 private:
  struct Route;
  static std::span<const Route> routes();
  static std::string_view pattern_of(const HttpRequest& request);
  const Route& route_of(const HttpRequest& request) const;
  void answer_checked(HttpExchange& exchange) const;
  void answer_with_model(HttpExchange& exchange, const Route& route) const;
  std::string wanted_model(const HttpRequest& request, JsonNode body) const;

  void page(HttpExchange& exchange) const;
  void health(HttpExchange& exchange) const;
  void models(HttpExchange& exchange) const;
  void one_model(HttpExchange& exchange) const;
  std::vector<Json> model_list() const;
  void slots(HttpExchange& exchange) const;
  void metrics(HttpExchange& exchange) const;
  void no_stored_response(HttpExchange& exchange) const;

  ModelPool& models_;
  ApiOptions options_;
};

// The reply to a malformed HTTP request: the same JSON as for a bad request.
HttpReply api_fault_reply(const HttpFault& fault);

}  // namespace leq
