// What the server answers: a table of paths, each with its function (docs/server.md).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "model/session.h"
#include "server/access.h"
#include "server/engine_thread.h"
#include "server/generation_call.h"
#include "server/http_server.h"
#include "server/slot_files.h"

namespace leq {

struct ApiOptions {
  AccessRules access;
  std::optional<double> most_seconds;  // that a reply may take
  double ping_seconds = 15;            // in which a stream's client hears something
  bool with_page = true;
  bool with_metrics = true;
  bool with_slots = true;
  std::string chat_template;  // its text or name, for /props
  std::optional<SlotFiles> slot_files;
};

class Api {
 public:
  // All must outlive it. `facts`: of the model, for its clients.
  Api(const ApiModel& model, const Model& facts, const RunLimits& limits, EngineThread& engine,
      const ApiOptions& options);

  // The handler of an HttpServer: answers, whatever is asked. Thread-safe.
  void answer(HttpExchange& exchange) const;
  // The HttpHeadCheck of an HttpServer: who may not ask is told before the body comes.
  std::optional<HttpReply> check_head(const HttpRequest& request) const;

 private:
  struct Route;
  static std::span<const Route> routes();
  std::string_view pattern_of(const HttpRequest& request) const;
  const Route& route_of(const HttpRequest& request) const;
  void answer_checked(HttpExchange& exchange) const;

  void page(HttpExchange& exchange) const;
  void health(HttpExchange& exchange) const;
  void models(HttpExchange& exchange) const;
  void props(HttpExchange& exchange) const;
  void slots(HttpExchange& exchange) const;
  void slot_action(HttpExchange& exchange) const;
  Json save_slot(std::size_t slot, const std::string& name) const;
  Json restore_slot(std::size_t slot, const std::string& name) const;
  Json erase_slot(std::size_t slot) const;
  std::size_t slot_of(const HttpRequest& request) const;
  void metrics(HttpExchange& exchange) const;
  void chat(HttpExchange& exchange) const { generate(exchange, CallStyle::chat); }
  void completions(HttpExchange& exchange) const { generate(exchange, CallStyle::text); }
  void native(HttpExchange& exchange) const { generate(exchange, CallStyle::native); }
  void responses(HttpExchange& exchange) const { generate(exchange, CallStyle::responses); }
  void messages(HttpExchange& exchange) const { generate(exchange, CallStyle::messages); }
  void generate(HttpExchange& exchange, CallStyle style) const;
  void no_stored_response(HttpExchange& exchange) const;
  std::vector<float> embed(const std::vector<Token>& tokens, std::string_view member) const;
  void embeddings(HttpExchange& exchange) const;
  void rerank(HttpExchange& exchange) const;
  void tokenize(HttpExchange& exchange) const;
  void detokenize(HttpExchange& exchange) const;
  void apply_template(HttpExchange& exchange) const;
  void count_tokens(HttpExchange& exchange) const;
  void count_responses_tokens(HttpExchange& exchange) const;
  void count_messages_tokens(HttpExchange& exchange) const;
  std::size_t tokens_of(JsonNode chat) const;

  void send(HttpExchange& exchange, const Json& json) const;

  const ApiModel& model_;
  const Model& facts_;
  RunLimits limits_;
  EngineThread& engine_;
  ApiOptions options_;
};

// For what is no request: the same JSON as for what is a bad one.
HttpReply api_fault_reply(const HttpFault& fault);

}  // namespace leq
