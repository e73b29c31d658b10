#include "server/api.h"

#include <malloc.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/page.h"

namespace leq {
namespace {

constexpr std::string_view kSlotPath = "/slots/ID";

// Adds the CORS headers to each reply.
class SiteExchange : public HttpExchange {
 public:
  SiteExchange(HttpExchange& inner, HttpHeaders headers)
      : inner_(inner), headers_(std::move(headers)) {
    headers_.emplace_back("X-Content-Type-Options", "nosniff");
  }
  const HttpRequest& request() const override { return inner_.request(); }
  void reply(const HttpReply& reply) override { inner_.reply(with_headers(reply)); }
  bool begin_stream(const HttpReply& head) override {
    begun_ = true;
    return inner_.begin_stream(with_headers(head));
  }
  bool write(std::string_view piece) override { return inner_.write(piece); }
  bool end_stream() override { return inner_.end_stream(); }
  bool client_is_there() override { return inner_.client_is_there(); }
  bool begun() const { return begun_; }

 private:
  HttpReply with_headers(HttpReply reply) const {
    reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
    return reply;
  }
  HttpExchange& inner_;
  HttpHeaders headers_;
  bool begun_ = false;
};

}  // namespace

// A path's handler: for the server as a whole, or for the model that the request names.
struct Api::Route {
  constexpr Route(std::string_view how, std::string_view where,
                  void (Api::*answers)(HttpExchange&) const, bool key = true)
      : method(how), path(where), answer(answers), needs_key(key) {}
  constexpr Route(std::string_view how, std::string_view where,
                  void (ModelApi::*answers)(HttpExchange&, JsonNode) const)
      : method(how), path(where), with_model(answers) {}

  std::string_view method, path;
  void (Api::*answer)(HttpExchange&) const = nullptr;
  void (ModelApi::*with_model)(HttpExchange&, JsonNode) const = nullptr;
  bool needs_key = true;
};

std::span<const Api::Route> Api::routes() {
  static constexpr std::array kRoutes = {
      Route{"GET", "/", &Api::page, false},
      Route{"GET", "/health", &Api::health, false},
      Route{"GET", "/v1/health", &Api::health, false},
      Route{"GET", "/v1/models", &Api::models},
      Route{"GET", "/models", &Api::models},
      Route{"GET", "/v1/models/NAME", &Api::one_model},
      Route{"POST", "/v1/chat/completions", &ModelApi::chat},
      Route{"POST", "/chat/completions", &ModelApi::chat},
      Route{"POST", "/v1/completions", &ModelApi::completions},
      Route{"POST", "/completion", &ModelApi::native},
      Route{"POST", "/completions", &ModelApi::native},
      Route{"POST", "/v1/responses", &ModelApi::responses},
      Route{"POST", "/responses", &ModelApi::responses},
      Route{"POST", "/v1/responses/input_tokens", &ModelApi::count_responses_tokens},
      Route{"GET", "/v1/responses/ID", &Api::no_stored_response},
      Route{"POST", "/v1/messages", &ModelApi::messages},
      Route{"POST", "/v1/messages/count_tokens", &ModelApi::count_messages_tokens},
      Route{"POST", "/v1/rerank", &ModelApi::rerank},
      Route{"POST", "/v1/reranking", &ModelApi::rerank},
      Route{"POST", "/rerank", &ModelApi::rerank},
      Route{"POST", "/v1/embeddings", &ModelApi::embeddings},
      Route{"POST", "/embeddings", &ModelApi::embeddings},
      Route{"POST", "/tokenize", &ModelApi::tokenize},
      Route{"POST", "/detokenize", &ModelApi::detokenize},
      Route{"POST", "/apply-template", &ModelApi::apply_template},
      Route{"POST", "/v1/chat/completions/input_tokens", &ModelApi::count_tokens},
      Route{"GET", "/props", &ModelApi::props},
      Route{"GET", "/slots", &Api::slots},
      Route{"POST", kSlotPath, &ModelApi::slot_action},
      Route{"GET", "/metrics", &Api::metrics},
  };
  return kRoutes;
}

// The path in the form used by the table of routes.
std::string_view Api::pattern_of(const HttpRequest& request) {
  if (request.path.starts_with("/v1/models/")) return "/v1/models/NAME";
  if (request.path.starts_with("/slots/")) return kSlotPath;
  constexpr std::string_view kResponses = "/v1/responses/";
  if (request.path.starts_with(kResponses) && request.path != "/v1/responses/input_tokens") {
    return "/v1/responses/ID";
  }
  return request.path;
}

const Api::Route& Api::route_of(const HttpRequest& request) const {
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const std::string_view path = pattern_of(request);
  std::string allowed;
  for (const Route& route : routes()) {
    if (route.path != path) continue;
    if (route.method == method) return route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (!allowed.empty()) {
    throw ApiError(405,
                   "method " + request.method + " is not allowed for " + printable(request.path) +
                       " (allowed: " + allowed + ")",
                   "method_not_allowed", {{"Allow", allowed}});
  }
  throw ApiError(404, "unknown path " + printable(request.path) + " (see docs/server.md)",
                 "not_found");
}

namespace {

// Returns the memory of a large request to the system, because each worker has a malloc arena of
// its own that would retain it.
class MemoryReturned {
 public:
  explicit MemoryReturned(std::size_t body_bytes) : body_bytes_(body_bytes) {}
  ~MemoryReturned() {
    if (body_bytes_ >= kLargeBody) malloc_trim(0);
  }
  MemoryReturned(const MemoryReturned&) = delete;
  MemoryReturned& operator=(const MemoryReturned&) = delete;

 private:
  static constexpr std::size_t kLargeBody = 256 << 10;
  std::size_t body_bytes_;
};

}  // namespace

void Api::answer(HttpExchange& exchange) const {
  const MemoryReturned returned(exchange.request().body.size());
  SiteExchange site(exchange, site_headers(exchange.request(), options_.access));
  try {
    answer_checked(site);
  } catch (const std::exception& error) {
    if (site.begun()) throw;
    const bool is_message = exchange.request().path.starts_with("/v1/messages");
    site.reply(is_message ? anthropic_form(error_reply(error)) : error_reply(error));
  }
}

std::optional<HttpReply> Api::check_head(const HttpRequest& request) const {
  try {
    check_site(request, options_.access);
    if (request.method != "OPTIONS" && route_of(request).needs_key) {
      check_key(request, options_.access);
    }
    return std::nullopt;
  } catch (const Error& error) {
    return error_reply(error);
  }
}

void Api::answer_checked(HttpExchange& exchange) const {
  const HttpRequest& request = exchange.request();
  check_site(request, options_.access);
  if (request.method == "OPTIONS") {
    return exchange.reply(preflight_reply(request, options_.access));
  }
  const Route& route = route_of(request);
  if (route.needs_key) check_key(request, options_.access);
  if (route.with_model != nullptr) return answer_with_model(exchange, route);
  (this->*route.answer)(exchange);
}

// The model that the body or "?model=NAME" names; empty: the default model.
std::string Api::wanted_model(const HttpRequest& request, JsonNode body) const {
  if (models_.has_one_model()) return "";
  if (std::string name = request.query_value("model"); !name.empty()) return name;
  return body ? text_field(body, "model").value_or("") : "";
}

void Api::answer_with_model(HttpExchange& exchange, const Route& route) const {
  const HttpRequest& request = exchange.request();
  const bool has_body = route.path != kSlotPath ? route.method == "POST" : !request.body.empty();
  Json tree;
  if (has_body) tree = parse_request_object(request.body);
  const JsonNode body = has_body ? tree : JsonNode();
  const ModelPool::Lease lease =
      models_.lease(wanted_model(request, body), [&] { return exchange.client_is_there(); });
  if (lease == nullptr)
    throw ApiError(503, "the client went away", "");  // the client is disconnected
  (ModelApi(*lease, {options_.most_seconds, options_.ping_seconds}).*route.with_model)(exchange,
                                                                                       body);
}

void Api::page(HttpExchange& exchange) const {
  if (!options_.with_page) throw ApiError(404, "there is no page here", "not_found");
  HttpReply reply;
  reply.type = "text/html; charset=utf-8";
  reply.body = page_html();
  reply.headers = {{"Content-Security-Policy", std::string(page_policy())},
                   {"X-Frame-Options", "DENY"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cache-Control", "no-cache"}};
  exchange.reply(reply);
}

HttpReply api_fault_reply(const HttpFault& fault) {
  return error_reply(fault.status, fault.text, "", "");
}

}  // namespace leq
