// Endpoints about the server and all its models: health, lists of models and slots, metrics.
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "server/api.h"
#include "server/api_error.h"
#include "server/metrics.h"

namespace leq {
namespace {

Json array_of(std::vector<Json> items) {
  Json list = Json::array();
  for (Json& item : items) list.push_back(std::move(item));
  return list;
}

// The NAME of "/v1/models/NAME".
std::string_view named_in(const HttpRequest& request) {
  return std::string_view(request.path).substr(std::string_view("/v1/models/").size());
}

Json status_json(const ModelStatus& status) {
  Json json = {{"value", state_name(status.state)}};
  if (status.memory_bytes > 0) json["memory_bytes"] = status.memory_bytes;
  if (!status.error.empty()) json["error"] = status.error;
  return json;
}

// `hosted`: null if the model is not loaded.
Json model_json(const ModelStatus& status, HostedModel* hosted) {
  Json one = {{"id", status.file.name},
              {"object", "model"},
              {"created", hosted != nullptr && status.file.created == 0 ? hosted->api().created
                                                                        : status.file.created},
              {"owned_by", "leq"},
              {"status", status_json(status)}};
  if (hosted != nullptr) {
    one["max_model_len"] = hosted->engine().context();
    one["meta"] = ModelApi(*hosted, {}).facts();
  } else {
    one["meta"] = Json::object({{"size", status.file.bytes}});
  }
  return one;
}

}  // namespace

void Api::health(HttpExchange& exchange) const {
  if (const auto failure = models_.failure()) {
    throw ApiError(503, "the engine has stopped: " + *failure, "engine_failed");
  }
  if (models_.stopping()) throw ApiError(503, "the server is shutting down", "shutting_down");
  send_json(exchange, Json::object({{"status", "ok"}}));
}

std::vector<Json> Api::model_list() const {
  const std::vector<ModelPool::Lease> loaded = models_.loaded();
  std::vector<Json> all;
  for (const ModelStatus& status : models_.list()) {
    const auto found = std::ranges::find(loaded, status.file.name,
                                         [](const auto& lease) { return lease->api().name; });
    all.push_back(model_json(status, found == loaded.end() ? nullptr : found->get()));
  }
  return all;
}

void Api::models(HttpExchange& exchange) const {
  send_json(exchange, {{"object", "list"}, {"data", array_of(model_list())}});
}

void Api::one_model(HttpExchange& exchange) const {
  const std::string_view name = named_in(exchange.request());
  for (const Json& one : model_list()) {
    if (one["id"].text() == name) return send_json(exchange, one);
  }
  throw ApiError(404, "there is no model " + printable(std::string(name)) + " here",
                 "model_not_found");
}

void Api::slots(HttpExchange& exchange) const {
  if (!options_.with_slots) throw ApiError(404, "slots are not shown here", "not_found");
  Json list = Json::array();
  for (const ModelPool::Lease& lease : models_.loaded()) {
    for (Json& slot : ModelApi(*lease, {}).slots()) {
      if (!models_.has_one_model()) slot["model"] = lease->api().name;
      list.push_back(std::move(slot));
    }
  }
  send_json(exchange, list);
}

void Api::metrics(HttpExchange& exchange) const {
  if (!options_.with_metrics) throw ApiError(404, "there are no metrics here", "not_found");
  std::vector<ModelMetrics> all;
  for (const ModelPool::Lease& lease : models_.loaded()) {
    all.push_back({models_.has_one_model() ? "" : lease->api().name, lease->engine().status()});
  }
  HttpReply reply;
  reply.type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = metrics_text(all);
  if (!models_.has_one_model()) reply.body += pool_metrics_text(models_.counts());
  exchange.reply(reply);
}

void Api::no_stored_response(HttpExchange& exchange) const {
  throw ApiError(404, printable(exchange.request().path) + ": responses are not stored here",
                 "not_found");
}

}  // namespace leq
