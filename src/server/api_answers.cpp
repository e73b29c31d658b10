// What is answered beside replies of the model: what it is, its tokens, its embeddings.
#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_tree.h"
#include "base/version.h"
#include "server/api.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/foreign_chat.h"
#include "server/metrics.h"

namespace leq {
namespace {

JsonTree body_of(const HttpExchange& exchange) {
  return parse_request_object(exchange.request().body);
}

std::string special_text(const Tokenizer& tokenizer, Token id) {
  if (id == kNoToken) return "";
  const Token ids[] = {id};
  return tokenizer.decode(ids, true);
}

}  // namespace

void Api::health(HttpExchange& exchange) const {
  if (const auto failure = engine_.failure()) {
    throw ApiError(503, "the engine has stopped: " + *failure, "engine_failed");
  }
  if (engine_.draining()) throw ApiError(503, "the server is shutting down", "shutting_down");
  send(exchange, Json::object({{"status", "ok"}}));
}

void Api::models(HttpExchange& exchange) const {
  const ModelConfig& config = facts_.config();
  const Json meta = {{"n_vocab", config.vocab},         {"n_ctx_train", config.context},
                     {"n_ctx", engine_.context()},      {"n_embd", config.width},
                     {"n_params", facts_.parameters()}, {"size", facts_.file().file_bytes()},
                     {"type", facts_.type()},           {"family", config.family}};
  const Json one = {{"id", model_.name},
                    {"object", "model"},
                    {"created", model_.created},
                    {"owned_by", "leq"},
                    {"max_model_len", engine_.context()},
                    {"meta", meta}};
  if (exchange.request().path.ends_with("models")) {
    send(exchange, {{"object", "list"}, {"data", Json::array({one})}});
  } else {
    send(exchange, one);
  }
}

void Api::props(HttpExchange& exchange) const {
  Json sampling = Json::object();
  for (const SamplingKnob& knob : kSamplingKnobs) {
    sampling[knob.name] = knob_value(model_.sampling, knob);
  }
  sampling["n_predict"] = model_.stop.max_tokens;
  const Tokenizer& tokenizer = model_.tokenizer;
  send(exchange, {{"default_generation_settings",
                   {{"n_ctx", engine_.context()}, {"params", std::move(sampling)}}},
                  {"total_slots", limits_.sequences},
                  {"model_alias", model_.name},
                  {"chat_template", options_.chat_template},
                  {"bos_token", special_text(tokenizer, tokenizer.bos())},
                  {"eos_token", special_text(tokenizer, tokenizer.eos())},
                  {"build_info", std::string("leq ") + kVersion}});
}

void Api::slots(HttpExchange& exchange) const {
  if (!options_.with_slots) throw ApiError(404, "slots are not shown here", "not_found");
  const EngineStatus status = engine_.status();
  Json list = Json::array();
  for (std::size_t i = 0; i < static_cast<std::size_t>(limits_.sequences); ++i) {
    Json slot = {{"id", i}, {"n_ctx", engine_.context()}, {"is_processing", i < status.running}};
    if (i < status.in_work.size() && i < status.running) {
      const RunningRequest& request = status.in_work[i];
      slot["id_task"] = request.id;
      slot["n_prompt_tokens"] = request.prompt_tokens;
      slot["n_decoded"] = request.reply_tokens;
      slot["seconds"] = request.seconds;
    }
    list.push_back(std::move(slot));
  }
  send(exchange, list);
}

void Api::metrics(HttpExchange& exchange) const {
  if (!options_.with_metrics) throw ApiError(404, "there are no metrics here", "not_found");
  HttpReply reply;
  reply.type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = metrics_text(engine_.status());
  exchange.reply(reply);
}

// The reply is written as text at once: a JSON value takes many times as much as an id.
void Api::tokenize(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  const JsonNode body = tree.root(), content = given_field(body, "content");
  if (content && !content.is_string()) field_error("content", "a string", content);
  const JsonNode special = given_field(body, "parse_special");
  const EncodeOptions options = {
      .parse_special = !special || flag_field(body, "parse_special"),
      .add_bos = flag_field(body, "add_special") && model_.tokenizer.add_bos()};
  const bool with_pieces = flag_field(body, "with_pieces");
  const std::vector<Token> ids =
      model_.tokenizer.encode(content ? std::string_view(content.text()) : "", options);
  HttpReply reply;
  reply.body = "{\"tokens\":[";
  reply.body.reserve(ids.size() * (with_pieces ? 40 : 6) + 16);
  bool is_first = true;
  for (const Token id : ids) {
    if (!std::exchange(is_first, false)) reply.body += ',';
    if (!with_pieces) {
      reply.body += std::to_string(id);
      continue;
    }
    reply.body += "{\"id\":" + std::to_string(id) +
                  ",\"piece\":" + Json(model_.tokenizer.token_bytes(id)).dump_any() + "}";
  }
  reply.body += "]}";
  exchange.reply(reply);
}

void Api::detokenize(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  const JsonNode tokens = given_field(tree.root(), "tokens");
  if (!tokens || !tokens.is_array()) field_error("tokens", "an array of ids", tokens);
  std::vector<Token> ids;
  for (JsonNode one = tokens.first(); one; one = one.next()) {
    const auto id = one.is_number() ? one.whole() : std::nullopt;
    if (!id || *id < 0 || static_cast<std::size_t>(*id) >= model_.tokenizer.size()) {
      field_error("tokens", "ids of the model", one);
    }
    ids.push_back(static_cast<Token>(*id));
  }
  send(exchange, Json::object({{"content", model_.tokenizer.decode(ids, true)}}));
}

void Api::apply_template(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  send(exchange, Json::object({{"prompt", joined(render_chat(tree.root(), model_))}}));
}

std::size_t Api::tokens_of(JsonNode chat) const {
  return model_.tokenizer.encode_parts(render_chat(chat, model_)).size();
}

void Api::count_tokens(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  send(exchange, {{"object", "response.input_tokens"}, {"input_tokens", tokens_of(tree.root())}});
}

void Api::count_responses_tokens(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  const ForeignChat chat = chat_of_responses(tree.root());
  send(exchange,
       {{"object", "response.input_tokens"}, {"input_tokens", tokens_of(chat.body.root())}});
}

void Api::count_messages_tokens(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  const ForeignChat chat = chat_of_messages(tree.root());
  send(exchange, Json::object({{"input_tokens", tokens_of(chat.body.root())}}));
}

}  // namespace leq
