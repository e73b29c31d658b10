#include "server/api.h"

#include <malloc.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "base/json_tree.h"
#include "base/text.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/foreign_chat.h"
#include "server/generation.h"
#include "server/page.h"

namespace leq {
namespace {

// Headers that the reply to a page of an allowed site has too.
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

struct Api::Route {
  std::string_view method, path;
  void (Api::*answer)(HttpExchange&) const;
  bool needs_key = true;
};

std::span<const Api::Route> Api::routes() {
  static constexpr std::array kRoutes = {
      Route{"GET", "/", &Api::page, false},
      Route{"GET", "/health", &Api::health, false},
      Route{"GET", "/v1/health", &Api::health, false},
      Route{"GET", "/v1/models", &Api::models},
      Route{"GET", "/models", &Api::models},
      Route{"POST", "/v1/chat/completions", &Api::chat},
      Route{"POST", "/chat/completions", &Api::chat},
      Route{"POST", "/v1/completions", &Api::completions},
      Route{"POST", "/completion", &Api::native},
      Route{"POST", "/completions", &Api::native},
      Route{"POST", "/v1/responses", &Api::responses},
      Route{"POST", "/responses", &Api::responses},
      Route{"POST", "/v1/responses/input_tokens", &Api::count_responses_tokens},
      Route{"GET", "/v1/responses/ID", &Api::no_stored_response},
      Route{"POST", "/v1/messages", &Api::messages},
      Route{"POST", "/v1/messages/count_tokens", &Api::count_messages_tokens},
      Route{"POST", "/v1/rerank", &Api::rerank},
      Route{"POST", "/v1/reranking", &Api::rerank},
      Route{"POST", "/rerank", &Api::rerank},
      Route{"POST", "/v1/embeddings", &Api::embeddings},
      Route{"POST", "/embeddings", &Api::embeddings},
      Route{"POST", "/tokenize", &Api::tokenize},
      Route{"POST", "/detokenize", &Api::detokenize},
      Route{"POST", "/apply-template", &Api::apply_template},
      Route{"POST", "/v1/chat/completions/input_tokens", &Api::count_tokens},
      Route{"GET", "/props", &Api::props},
      Route{"GET", "/slots", &Api::slots},
      Route{"POST", "/slots/ID", &Api::slot_action},
      Route{"GET", "/metrics", &Api::metrics},
  };
  return kRoutes;
}

Api::Api(const ApiModel& model, const Model& facts, const RunLimits& limits, EngineThread& engine,
         const ApiOptions& options)
    : model_(model), facts_(facts), limits_(limits), engine_(engine), options_(options) {}

// The path as the table of routes has it.
std::string_view Api::pattern_of(const HttpRequest& request) const {
  // /v1/models/NAME is answered as /v1/models: there is one.
  if (request.path == "/v1/models/" + model_.name) return "/v1/models";
  if (request.path.starts_with("/slots/")) return "/slots/ID";
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
  if (request.path.starts_with("/v1/models/")) {
    throw ApiError(404, "there is no model " + printable(request.path.substr(11)) + " here",
                   "model_not_found");
  }
  throw ApiError(404, "unknown path " + printable(request.path) + " (see docs/server.md)",
                 "not_found");
}

namespace {

// What a large request took goes back to the system: each worker has an arena of its own, which
// would keep it.
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
  (this->*route.answer)(exchange);
}

void Api::send(HttpExchange& exchange, const Json& json) const {
  HttpReply reply;
  reply.body = json.dump_any();
  exchange.reply(reply);
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

void Api::generate(HttpExchange& exchange, CallStyle style) const {
  const JsonTree body = parse_request_body(exchange.request().body);
  const bool is_foreign = style == CallStyle::responses || style == CallStyle::messages;
  ForeignChat foreign;
  if (style == CallStyle::responses) foreign = chat_of_responses(body.root());
  if (style == CallStyle::messages) foreign = chat_of_messages(body.root());
  const JsonNode chat = is_foreign ? foreign.body.root() : body.root();
  GenerationCall call = read_generation_call(style, chat, model_);
  call.asked = body.root();
  call.notes.insert(call.notes.begin(), foreign.notes.begin(), foreign.notes.end());
  for (std::string& note : call.notes) note = spelled(note);
  answer_generation(exchange, std::move(call), model_, engine_,
                    {options_.most_seconds, options_.ping_seconds});
}

void Api::no_stored_response(HttpExchange& exchange) const {
  throw ApiError(404, printable(exchange.request().path) + ": responses are not stored here",
                 "not_found");
}

HttpReply api_fault_reply(const HttpFault& fault) {
  return error_reply(fault.status, fault.text, "", "");
}

}  // namespace leq
