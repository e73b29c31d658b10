#include "server/server.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "base/system.h"
#include "base/text.h"
#include "base/version.h"
#include "server/dialects.h"
#include "server/fields.h"
#include "server/model_api.h"
#include "server/page_texts.h"

namespace leq {
namespace {

// Threads reserved for quick requests when all other threads wait for replies.
constexpr std::size_t kQuickWorkers = 4;
constexpr std::string_view kSlotPath = "/slots/ID", kModelPath = "/v1/models/";

// Adds the headers of site_headers to each reply.
class SiteExchange : public HttpExchange {
 public:
  SiteExchange(HttpExchange& inner, HttpHeaders headers)
      : inner_(inner), headers_(std::move(headers)) {}
  const HttpRequest& request() const override { return inner_.request(); }
  void reply(const HttpReply& reply) override {
    status_ = reply.status;
    inner_.reply(with_headers(reply));
  }
  bool begin_stream(const HttpReply& head) override {
    begun_ = true;
    status_ = head.status;
    return inner_.begin_stream(with_headers(head));
  }
  bool write(std::string_view piece) override { return inner_.write(piece); }
  bool end_stream() override { return inner_.end_stream(); }
  bool client_is_there() override { return inner_.client_is_there(); }
  bool begun() const { return begun_; }
  int status() const { return status_; }

 private:
  HttpReply with_headers(HttpReply reply) const {
    reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
    return reply;
  }
  HttpExchange& inner_;
  HttpHeaders headers_;
  bool begun_ = false;
  int status_ = 0;
};

// The path in the form used by the table of routes.
std::string_view pattern_of(const HttpRequest& request) {
  if (request.path.starts_with(kModelPath)) return "/v1/models/NAME";
  if (request.path.starts_with("/slots/")) return kSlotPath;
  constexpr std::string_view kResponses = "/v1/responses/";
  if (request.path.starts_with(kResponses) && request.path != "/v1/responses/input_tokens") {
    return "/v1/responses/ID";
  }
  return request.path;
}

// A CSP source that allows only this script or style, identified by its hash.
std::string allowed(std::string_view text) {
  const std::string hex = sha256_hex(text);
  std::string digest;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    digest += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return "'sha256-" + base64_of(digest) + "'";
}

std::string_view page_html() {
  static const std::string kPage = replace_all(
      replace_all(kPageFrame, "<style></style>", "<style>" + std::string(kPageStyle) + "</style>"),
      "<script></script>", "<script>" + std::string(kPageScript) + "</script>");
  return kPage;
}

std::string_view page_policy() {
  static const std::string kPolicy =
      "default-src 'none'; script-src " + allowed(kPageScript) + "; style-src " +
      allowed(kPageStyle) +
      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'";
  return kPolicy;
}

// The server's metrics in Prometheus format, with llama-server's names and a prefix of leq.

struct ModelMetrics {
  std::string model;  // label of all samples; empty: none
  EngineStatus status;
};

// The shortest text that reads back as the same number, independent of the locale.
std::string number(double value) {
  std::array<char, 32> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

struct Metric {
  std::string_view name, type, help;
  double (*value)(const EngineStatus&);
};

double whole(auto count) { return static_cast<double>(count); }

constexpr Metric kMetrics[] = {
    {"prompt_tokens_total", "counter", "tokens of prompts fed",
     [](const EngineStatus& s) { return whole(s.counts.prompt_tokens); }},
    {"prompt_tokens_cached_total", "counter", "tokens of prompts that were there already",
     [](const EngineStatus& s) { return whole(s.counts.cached_tokens); }},
    {"tokens_predicted_total", "counter", "tokens of replies",
     [](const EngineStatus& s) { return whole(s.counts.reply_tokens); }},
    {"prompt_seconds_total", "counter", "time of feeding prompts",
     [](const EngineStatus& s) { return s.prompt_seconds; }},
    {"tokens_predicted_seconds_total", "counter", "time of writing replies",
     [](const EngineStatus& s) { return s.reply_seconds; }},
    {"n_decode_total", "counter", "steps of the engine",
     [](const EngineStatus& s) { return whole(s.counts.steps); }},
    {"requests_total", "counter", "replies asked for",
     [](const EngineStatus& s) { return whole(s.requests); }},
    {"requests_refused_total", "counter", "calls refused while the queue was full",
     [](const EngineStatus& s) { return whole(s.refused); }},
    {"requests_failed_total", "counter", "replies that failed",
     [](const EngineStatus& s) { return whole(s.failed); }},
    {"requests_cancelled_total", "counter",
     "requests cancelled because the client closed the connection",
     [](const EngineStatus& s) { return whole(s.cancelled); }},
    {"evictions_total", "counter", "times that a reply gave up its pages",
     [](const EngineStatus& s) { return whole(s.counts.evictions); }},
    {"draft_tokens_total", "counter", "draft tokens checked",
     [](const EngineStatus& s) { return whole(s.counts.draft_tokens); }},
    {"accepted_tokens_total", "counter", "draft tokens accepted",
     [](const EngineStatus& s) { return whole(s.counts.accepted_tokens); }},
    {"prompt_tokens_seconds", "gauge", "tokens of prompts in a second, mean over replies",
     [](const EngineStatus& s) { return rate(s.prompt_fed, s.prompt_seconds); }},
    {"predicted_tokens_seconds", "gauge", "tokens of replies in a second, mean over replies",
     [](const EngineStatus& s) { return rate(s.reply_decoded, s.reply_seconds); }},
    {"kv_cache_usage_ratio", "gauge", "share of the KV cache's pages in use",
     [](const EngineStatus& s) { return share(s.pages - s.free_pages - s.idle_pages, s.pages); }},
    {"requests_processing", "gauge", "replies being written",
     [](const EngineStatus& s) { return whole(s.running); }},
    {"requests_deferred", "gauge", "replies that wait for a sequence",
     [](const EngineStatus& s) { return whole(s.waiting); }},
};

// Histograms under vLLM's names, which existing dashboards use.
struct HistogramMetric {
  std::string_view name, help;
  TimeHistogram EngineStatus::*value;
};
constexpr HistogramMetric kHistograms[] = {
    {"time_to_first_token_seconds", "from a request to its first token",
     &EngineStatus::first_token},
    {"inter_token_latency_seconds", "from one token of a reply to its next",
     &EngineStatus::next_token},
    {"e2e_request_latency_seconds", "from a request to its reply's end",
     &EngineStatus::whole_reply},
};

std::string head(std::string_view name, std::string_view type, std::string_view help) {
  const std::string full = "leq:" + std::string(name);
  return "# HELP " + full + ' ' + std::string(help) + "\n# TYPE " + full + ' ' + std::string(type) +
         '\n';
}

// The label `model="NAME"`, escaped for Prometheus; empty if there is no name.
std::string label_of(const std::string& model) {
  if (model.empty()) return "";
  return "model=\"" +
         replace_all(replace_all(replace_all(model, "\\", "\\\\"), "\"", "\\\""), "\n", "\\n") +
         '"';
}

std::string sample(std::string_view name, const std::string& labels, const std::string& value) {
  return "leq:" + std::string(name) + (labels.empty() ? "" : "{" + labels + "}") + ' ' + value +
         '\n';
}

// Buckets are cumulative: each counts all values up to its bound.
std::string histogram_samples(std::string_view name, const std::string& labels,
                              const TimeHistogram& histogram) {
  std::string text;
  std::int64_t below = 0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    below += histogram.counts[i];
    const std::string bound =
        i < TimeHistogram::kBounds.size() ? number(TimeHistogram::kBounds[i]) : std::string("+Inf");
    text +=
        sample(std::string(name) + "_bucket",
               labels + (labels.empty() ? "" : ",") + "le=\"" + bound + '"', std::to_string(below));
  }
  return text + sample(std::string(name) + "_sum", labels, number(histogram.sum)) +
         sample(std::string(name) + "_count", labels, std::to_string(below));
}

std::string metrics_text(std::span<const ModelMetrics> models) {
  std::string text;
  for (const Metric& metric : kMetrics) {
    text += head(metric.name, metric.type, metric.help);
    for (const ModelMetrics& one : models) {
      text += sample(metric.name, label_of(one.model), number(metric.value(one.status)));
    }
  }
  for (const HistogramMetric& metric : kHistograms) {
    text += head(metric.name, "histogram", metric.help);
    for (const ModelMetrics& one : models) {
      text += histogram_samples(metric.name, label_of(one.model), one.status.*metric.value);
    }
  }
  return text;
}

std::string pool_metrics_text(const PoolCounts& counts) {
  const auto metric = [](std::string_view name, std::string_view type, std::string_view help,
                         auto value) {
    return head(name, type, help) + sample(name, "", number(whole(value)));
  };
  return metric("models_loaded", "gauge", "models in memory", counts.loaded) +
         metric("models_memory_bytes", "gauge", "memory of loaded models", counts.memory_bytes) +
         metric("model_loads_total", "counter", "models loaded", counts.loads) +
         metric("model_unloads_total", "counter", "models unloaded", counts.drops) +
         metric("model_load_failures_total", "counter", "models that could not be loaded",
                counts.failures);
}

Json status_json(const ModelStatus& status) {
  Json json = {{"value", state_name(status.state)}};
  if (status.memory_bytes > 0) json["memory_bytes"] = status.memory_bytes;
  if (status.is_pinned) json["pinned"] = true;
  if (!status.error.empty()) json["error"] = status.error;
  return json;
}

Json model_json(const ModelStatus& status) {
  HostedModel* const hosted = status.hosted.get();
  Json one = {{"id", status.file.name},
              {"object", "model"},
              {"created", hosted != nullptr && status.file.created == 0 ? hosted->api().created
                                                                        : status.file.created},
              {"owned_by", "leq"},
              {"status", status_json(status)}};
  if (hosted != nullptr) {
    one["max_model_len"] = hosted->engine().context();
    one["meta"] = ModelApi(*hosted).facts();
  } else {
    one["meta"] = Json::object({{"size", status.file.bytes}});
  }
  return one;
}

// The same in Ollama's form. The digest stands for name, size and time, since content is not
// hashed.
Json ollama_model_json(const ModelStatus& status) {
  HostedModel* const hosted = status.hosted.get();
  const std::string& name = status.file.name;
  const bool is_known = hosted != nullptr && status.file.created == 0;
  const std::int64_t created = is_known ? hosted->api().created : status.file.created;
  const std::uint64_t bytes = is_known ? hosted->model().file().file_bytes() : status.file.bytes;
  return {{"name", name},
          {"model", name},
          {"modified_at", time_text(created)},
          {"size", bytes},
          {"digest", sha256_hex(name + std::to_string(bytes) + std::to_string(created))},
          {"details", hosted != nullptr ? ModelApi(*hosted).ollama_details() : Json::object()}};
}

// A time as Ollama's clients write it: seconds, or a text such as "1h30m", "90s" or "-1".
double read_duration(JsonNode value, std::string_view member) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  constexpr Unit kUnits[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600},
                             {"m", 60},    {"s", 1},     {"", 1}};
  if (value.is_number()) return value.number();
  std::string text = value.is_string() ? value.text() : "";
  const bool is_negative = text.starts_with("-");
  std::string_view rest = std::string_view(text).substr(is_negative ? 1 : 0);
  double seconds = 0;
  do {
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789."), rest.size());
    const auto count = parse_double(rest.substr(0, digits));
    if (!count) field_error(member, "seconds, or a time as 5m", value);
    rest.remove_prefix(digits);
    const auto* unit =
        std::ranges::find_if(kUnits, [&](const Unit& one) { return rest.starts_with(one.name); });
    seconds += *count * unit->seconds;
    rest.remove_prefix(unit->name.size());
  } while (!rest.empty());
  return is_negative ? -seconds : seconds;
}

// Seconds that the model stays loaded without requests; a negative time: for ever.
std::optional<double> read_keep_alive(JsonNode body) {
  const JsonNode value = given_field(body, "keep_alive");
  if (!value) return std::nullopt;
  const double seconds = read_duration(value, "keep_alive");
  return seconds < 0 ? kNeverIdle : seconds;
}

// The reply to an error, in the form of the API that the request asks.
HttpReply error_reply_to(const HttpRequest& request, const std::exception& error) {
  HttpReply reply = error_reply(error);
  if (request.path.starts_with("/v1/messages")) return anthropic_form(std::move(reply));
  if (request.path.starts_with("/api/")) return ollama_form(std::move(reply));
  return reply;
}

[[noreturn]] void client_left() {
  throw ApiError(503, "the client went away", "");  // it cannot be told
}

}  // namespace

Server::Server(const Model& model, Session& session, const ServerOptions& options)
    : options_(options), models_(model, session, options) {
  listen();
}

Server::Server(const PoolOptions& models, ModelLoader loader, const ServerOptions& options)
    : options_(options), models_(models, std::move(loader)) {
  listen();
}

void Server::listen() {
  HttpOptions http = options_.http;
  http.workers = static_cast<int>(models_.most_requests() + kQuickWorkers);
  http_ = std::make_unique<HttpServer>(
      http, [this](HttpExchange& exchange) { answer(exchange); },
      [](const HttpRequest& request, const HttpFault& fault) {
        return error_reply_to(request, ApiError(fault.status, fault.text, ""));
      },
      [this](const HttpRequest& request) { return check_head(request); });
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

// A path's handler: for the server as a whole, or for the model that the request names.
struct Server::Route {
  constexpr Route(std::string_view how, std::string_view where,
                  void (Server::*answers)(HttpExchange&), bool key = true)
      : method(how), path(where), answer(answers), needs_key(key) {}
  constexpr Route(std::string_view how, std::string_view where,
                  void (ModelApi::*answers)(HttpExchange&, JsonNode) const)
      : method(how), path(where), with_model(answers) {}

  std::string_view method, path;
  void (Server::*answer)(HttpExchange&) = nullptr;
  void (ModelApi::*with_model)(HttpExchange&, JsonNode) const = nullptr;
  bool needs_key = true;
};

std::span<const Server::Route> Server::routes() {
  static constexpr std::array kRoutes = {
      Route{"GET", "/", &Server::page, false},
      Route{"GET", "/health", &Server::health, false},
      Route{"GET", "/v1/health", &Server::health, false},
      Route{"GET", "/v1/models", &Server::list_models},
      Route{"GET", "/models", &Server::list_models},
      Route{"GET", "/v1/models/NAME", &Server::one_model},
      Route{"POST", "/models/load", &Server::load_model},
      Route{"POST", "/models/unload", &Server::unload_model},
      Route{"POST", "/v1/chat/completions", &ModelApi::generate<CallStyle::chat>},
      Route{"POST", "/chat/completions", &ModelApi::generate<CallStyle::chat>},
      Route{"POST", "/v1/completions", &ModelApi::generate<CallStyle::text>},
      Route{"POST", "/completion", &ModelApi::generate<CallStyle::native>},
      Route{"POST", "/completions", &ModelApi::generate<CallStyle::native>},
      Route{"POST", "/v1/responses", &ModelApi::generate<CallStyle::responses>},
      Route{"POST", "/responses", &ModelApi::generate<CallStyle::responses>},
      Route{"POST", "/v1/responses/input_tokens", &ModelApi::count_tokens<CallStyle::responses>},
      Route{"GET", "/v1/responses/ID", &Server::no_stored_response},
      Route{"POST", "/v1/messages", &ModelApi::generate<CallStyle::messages>},
      Route{"POST", "/v1/messages/count_tokens", &ModelApi::count_tokens<CallStyle::messages>},
      Route{"POST", "/v1/rerank", &ModelApi::rerank},
      Route{"POST", "/v1/reranking", &ModelApi::rerank},
      Route{"POST", "/rerank", &ModelApi::rerank},
      Route{"POST", "/v2/rerank", &ModelApi::rerank},
      Route{"POST", "/v1/embeddings", &ModelApi::embeddings},
      Route{"POST", "/embeddings", &ModelApi::embeddings},
      Route{"POST", "/embedding", &ModelApi::native_embeddings},
      Route{"POST", "/tokenize", &ModelApi::tokenize},
      Route{"POST", "/detokenize", &ModelApi::detokenize},
      Route{"POST", "/apply-template", &ModelApi::apply_template},
      Route{"POST", "/v1/chat/completions/input_tokens", &ModelApi::count_tokens<CallStyle::chat>},
      Route{"GET", "/props", &ModelApi::props},
      Route{"GET", "/slots", &Server::slots},
      Route{"POST", kSlotPath, &ModelApi::slot_action},
      Route{"GET", "/metrics", &Server::metrics},
      Route{"POST", "/api/chat", &ModelApi::generate<CallStyle::ollama_chat>},
      Route{"POST", "/api/generate", &ModelApi::generate<CallStyle::ollama_generate>},
      Route{"POST", "/api/embed", &ModelApi::ollama_embed},
      Route{"POST", "/api/embeddings", &ModelApi::ollama_embed},
      Route{"POST", "/api/show", &ModelApi::ollama_show},
      Route{"GET", "/api/tags", &Server::ollama_models},
      Route{"GET", "/api/ps", &Server::ollama_models},
      Route{"GET", "/api/version", &Server::ollama_version, false},
  };
  return kRoutes;
}

const Server::Route& Server::route_of(const HttpRequest& request) {
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

void Server::answer(HttpExchange& exchange) {
  SiteExchange site(exchange, site_headers(exchange.request(), options_.access));
  const Stopwatch watch;
  try {
    answer_checked(site);
  } catch (const std::exception& error) {
    if (site.begun()) throw;
    site.reply(error_reply_to(exchange.request(), error));
  }
  log(exchange.request(), site.status(), watch.seconds(), site.facts);
  // Returns the memory of a large request to the system, because each worker has a malloc arena of
  // its own that would retain it.
  constexpr std::size_t kLargeBody = 64 << 10;
  if (exchange.request().body.size() >= kLargeBody) system::return_freed_memory();
}

// Only the server's own words for a path are logged, since a client's may contain texts.
void Server::log(const HttpRequest& request, int status, double seconds,
                 const RequestFacts& facts) const {
  if (!options_.logs_requests) return;
  const std::string_view path = pattern_of(request);
  const bool is_known =
      std::ranges::any_of(routes(), [&](const Route& route) { return route.path == path; });
  constexpr std::string_view kMethods[] = {"GET", "POST", "HEAD", "OPTIONS"};
  const auto* method = std::ranges::find(kMethods, request.method);
  options_.say(
      time_text(std::time(nullptr)) + ' ' + (method != std::end(kMethods) ? request.method : "-") +
      ' ' + std::string(is_known ? path : "-") + ' ' +
      (facts.model.empty() ? "-" : printable(facts.model)) + ' ' + std::to_string(status) + " in " +
      std::to_string(facts.prompt_tokens) + " cached " + std::to_string(facts.cached_tokens) +
      " out " + std::to_string(facts.reply_tokens) + ' ' + fixed(seconds * 1e3, 1) + " ms");
}

std::optional<HttpReply> Server::check_head(const HttpRequest& request) const {
  try {
    check_site(request, options_.access);
    if (request.method != "OPTIONS" && route_of(request).needs_key) {
      check_key(request, options_.access);
    }
    return std::nullopt;
  } catch (const Error& error) {
    HttpReply reply = error_reply_to(request, error);
    for (auto& header : site_headers(request, options_.access)) {
      reply.headers.push_back(std::move(header));
    }
    log(request, reply.status, 0, {});
    return reply;
  }
}

void Server::answer_checked(HttpExchange& exchange) {
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

void Server::answer_with_model(HttpExchange& exchange, const Route& route) {
  const HttpRequest& request = exchange.request();
  const bool has_body = route.path != kSlotPath ? route.method == "POST" : !request.body.empty();
  Json tree;
  if (has_body) tree = parse_request_object(request.body);
  const JsonNode body = has_body ? tree : JsonNode();
  // The model that the body or "?model=NAME" names; empty: the default model.
  std::string wanted;
  if (!models_.has_one_model()) {
    wanted = request.query_value("model");
    const std::string named = body ? text_field(body, "model").value_or("") : "";
    if (!wanted.empty() && !named.empty() && wanted != named) {
      field_error("model", "the body names " + printable(named) + ", the query " +
                               printable(wanted) + ": name one model");
    }
    if (wanted.empty()) wanted = named;
  }
  std::optional<double> idle_seconds;
  if (request.path.starts_with("/api/")) {
    idle_seconds = read_keep_alive(body);
    if (ollama_only_loads(exchange, body, wanted)) return;
  }
  const ModelPool::Lease lease = models_.lease(
      wanted, [&] { return exchange.client_is_there(); }, idle_seconds);
  if (lease == nullptr) client_left();
  const ApiModel api = models_.api_of(wanted, *lease);
  exchange.facts.model = api.name;
  const ReplyTimes times = {options_.most_seconds, options_.ping_seconds};
  (ModelApi(*lease, api, times).*route.with_model)(exchange, body);
}

void Server::load_model(HttpExchange& exchange) {
  const Json body = parse_request_object(exchange.request().body);
  const auto is_wanted = [&] { return exchange.client_is_there(); };
  if (models_.lease(text_field(body, "model").value_or(""), is_wanted) == nullptr) client_left();
  send_json(exchange, Json::object({{"success", true}}));
}

void Server::unload_model(HttpExchange& exchange) {
  const Json body = parse_request_object(exchange.request().body);
  models_.unload(text_field(body, "model").value_or(""),
                 [&] { return exchange.client_is_there(); });
  send_json(exchange, Json::object({{"success", true}}));
}

bool Server::ollama_only_loads(HttpExchange& exchange, JsonNode body, const std::string& model) {
  const bool is_chat = exchange.request().path == "/api/chat";
  if (!is_chat && exchange.request().path != "/api/generate") return false;
  const JsonNode question = given_field(body, is_chat ? "messages" : "prompt");
  const bool has_question = is_chat
                                ? question.size() > 0
                                : question && !(question.is_string() && question.text().empty());
  if (has_question) return false;
  const auto is_wanted = [&] { return exchange.client_is_there(); };
  const auto idle_seconds = read_keep_alive(body);
  const bool unloads = idle_seconds && *idle_seconds == 0;
  const std::string id =
      models_.has_one_model() ? models_.list().front().file.name : models_.id_of(model);
  if (unloads) {
    models_.unload(model, is_wanted);
  } else if (models_.lease(model, is_wanted, idle_seconds) == nullptr) {
    client_left();
  }
  Json reply = {{"model", id},
                {"created_at", time_text(std::time(nullptr))},
                {"done", true},
                {"done_reason", unloads ? "unload" : "load"}};
  if (is_chat) {
    reply["message"] = Json::object({{"role", "assistant"}, {"content", ""}});
  } else {
    reply["response"] = "";
  }
  send_json(exchange, reply);
  return true;
}

void Server::page(HttpExchange& exchange) {
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

void Server::health(HttpExchange& exchange) {
  if (const auto failure = models_.failure()) {
    throw ApiError(503, "the engine has stopped: " + *failure, "engine_failed");
  }
  if (models_.stopping()) throw ApiError(503, "the server is shutting down", "shutting_down");
  send_json(exchange, Json::object({{"status", "ok"}}));
}

std::vector<Json> Server::model_list() {
  std::vector<Json> all;
  for (const ModelStatus& status : models_.list()) all.push_back(model_json(status));
  return all;
}

void Server::list_models(HttpExchange& exchange) {
  send_json(exchange, {{"object", "list"}, {"data", Json(model_list())}});
}

// /api/tags lists all models, /api/ps the loaded ones.
void Server::ollama_models(HttpExchange& exchange) {
  const bool only_loaded = exchange.request().path == "/api/ps";
  Json all = Json::array();
  for (const ModelStatus& status : models_.list()) {
    if (only_loaded && status.hosted == nullptr) continue;
    Json one = ollama_model_json(status);
    if (only_loaded) {
      const bool expires = status.idle_seconds < 1e9;
      one["expires_at"] =
          expires ? time_text(std::time(nullptr) + static_cast<std::int64_t>(status.idle_seconds))
                  : "9999-12-31T23:59:59Z";
      one["size_vram"] = 0;
    }
    all.push_back(std::move(one));
  }
  send_json(exchange, Json::object({{"models", std::move(all)}}));
}

void Server::ollama_version(HttpExchange& exchange) {
  send_json(exchange, Json::object({{"version", kVersion}}));
}

void Server::one_model(HttpExchange& exchange) {
  const std::string id = models_.id_of(exchange.request().path.substr(kModelPath.size()));
  for (const Json& one : model_list()) {
    if (one["id"].text() == id) return send_json(exchange, one);
  }
  throw ApiError(404, "there is no model " + printable(id) + " here", "model_not_found");
}

void Server::slots(HttpExchange& exchange) {
  if (!options_.with_slots) throw ApiError(404, "slots are not shown here", "not_found");
  Json list = Json::array();
  for (const ModelPool::Lease& lease : models_.loaded()) {
    for (Json& slot : ModelApi(*lease).slots()) {
      if (!models_.has_one_model()) slot["model"] = lease->api().name;
      list.push_back(std::move(slot));
    }
  }
  send_json(exchange, list);
}

void Server::metrics(HttpExchange& exchange) {
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

void Server::no_stored_response(HttpExchange& exchange) {
  throw ApiError(404, printable(exchange.request().path) + ": responses are not stored here",
                 "not_found");
}

}  // namespace leq
