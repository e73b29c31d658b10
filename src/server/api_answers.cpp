// What is answered beside replies of the model: what it is, its tokens, its embeddings.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "base/json_tree.h"
#include "base/version.h"
#include "server/api.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/base64.h"
#include "server/metrics.h"

namespace leq {
namespace {

JsonTree body_of(const HttpExchange& exchange) {
  JsonTree tree = parse_json_tree(exchange.request().body, "the body", kBodyLimits);
  require(tree.root().is_object(), ErrorKind::bad_input, "the body: expected a JSON object");
  return tree;
}

// Little-endian f32 numbers, as clients of the OpenAI API ask for them.
std::string base64_numbers(std::span<const float> numbers) {
  static_assert(std::endian::native == std::endian::little);
  return base64_of({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
}

// Scaled to a length of 1; zeros stay zeros.
void normalize(std::vector<float>& numbers) {
  double sum = 0;
  for (const float x : numbers) sum += double{x} * double{x};
  if (sum == 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& x : numbers) x = static_cast<float>(double{x} * scale);
}

std::string special_text(const Tokenizer& tokenizer, Token id) {
  if (id == kNoToken) return "";
  const Token ids[] = {id};
  return tokenizer.decode(ids, true);
}

std::int64_t now_seconds() {
  using std::chrono::duration_cast, std::chrono::seconds, std::chrono::system_clock;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

void Api::health(HttpExchange& exchange) const {
  if (const auto failure = engine_.failure()) {
    throw ApiError(503, "the engine has stopped: " + *failure, "engine_failed");
  }
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
                    {"created", now_seconds()},
                    {"owned_by", "leq"},
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

void Api::embeddings(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  const JsonNode body = tree.root();
  const std::string format = text_field(body, "encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    field_error("encoding_format", "float or base64", body.find("encoding_format"));
  }
  const std::int64_t width = facts_.config().width;
  whole_field(body, "dimensions", width, width);
  const auto prompts = read_prompts(body, "input", model_, true);
  Json data = Json::array();
  std::size_t tokens = 0;
  for (const std::vector<Token>& prompt : prompts) {
    EmbeddedText text = {.tokens = prompt};
    engine_.with_idle_sequence([&](Engine& engine) { engine.embed_chunk(text); });
    while (!text.done()) {
      engine_.between_steps([&](Engine& engine) { engine.embed_chunk(text); });
    }
    normalize(text.mean);
    tokens += prompt.size();
    Json embedding = format == "base64" ? Json(base64_numbers(text.mean)) : Json(text.mean);
    data.push_back(
        {{"object", "embedding"}, {"index", data.size()}, {"embedding", std::move(embedding)}});
    if (!exchange.client_is_there()) return;
  }
  send(exchange, {{"object", "list"},
                  {"data", std::move(data)},
                  {"model", model_.name},
                  {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

void Api::tokenize(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  const JsonNode body = tree.root();
  const std::string text = text_field(body, "content").value_or("");
  const JsonNode special = given_field(body, "parse_special");
  const EncodeOptions options = {
      .parse_special = !special || flag_field(body, "parse_special"),
      .add_bos = flag_field(body, "add_special") && model_.tokenizer.add_bos()};
  Json tokens = Json::array();
  for (const Token id : model_.tokenizer.encode(text, options)) {
    if (!flag_field(body, "with_pieces")) {
      tokens.push_back(id);
      continue;
    }
    const Token ids[] = {id};
    tokens.push_back({{"id", id}, {"piece", model_.tokenizer.decode(ids, true)}});
  }
  send(exchange, Json::object({{"tokens", std::move(tokens)}}));
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

void Api::count_tokens(HttpExchange& exchange) const {
  const JsonTree tree = body_of(exchange);
  const auto tokens = model_.tokenizer.encode_parts(render_chat(tree.root(), model_));
  send(exchange, {{"object", "response.input_tokens"}, {"input_tokens", tokens.size()}});
}

}  // namespace leq
