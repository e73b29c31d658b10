#include "server/model_api.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/version.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/foreign_chat.h"

namespace leq {
namespace {

std::string special_text(const Tokenizer& tokenizer, Token id) {
  if (id == kNoToken) return "";
  const Token ids[] = {id};
  return tokenizer.decode(ids, true);
}

}  // namespace

void send_json(HttpExchange& exchange, const Json& json) {
  HttpReply reply;
  reply.body = json.dump_any();
  exchange.reply(reply);
}

void ModelApi::generate(HttpExchange& exchange, JsonNode body, CallStyle style) const {
  const bool is_foreign = style == CallStyle::responses || style == CallStyle::messages;
  ForeignChat foreign;
  if (style == CallStyle::responses) foreign = chat_of_responses(body);
  if (style == CallStyle::messages) foreign = chat_of_messages(body);
  GenerationCall call = read_generation_call(style, is_foreign ? foreign.body : body, model_);
  call.asked = body;
  call.notes.insert(call.notes.begin(), foreign.notes.begin(), foreign.notes.end());
  for (std::string& note : call.notes) note = spelled(note);
  answer_generation(exchange, std::move(call), model_, engine_, times_);
}

Json ModelApi::facts() const {
  const ModelConfig& config = facts_.config();
  return {{"n_vocab", config.vocab},         {"n_ctx_train", config.context},
          {"n_ctx", engine_.context()},      {"n_embd", config.width},
          {"n_params", facts_.parameters()}, {"size", facts_.file().file_bytes()},
          {"type", facts_.type()},           {"family", config.family}};
}

std::vector<Json> ModelApi::slots() const {
  const EngineStatus status = engine_.status();
  std::vector<Json> list;
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
  return list;
}

void ModelApi::props(HttpExchange& exchange, JsonNode) const {
  Json sampling = Json::object();
  for (const SamplingKnob& knob : kSamplingKnobs) {
    sampling[knob.name] = knob_value(model_.sampling, knob);
  }
  sampling["n_predict"] = model_.stop.max_tokens;
  const Tokenizer& tokenizer = model_.tokenizer;
  send_json(exchange, {{"default_generation_settings",
                        {{"n_ctx", engine_.context()}, {"params", std::move(sampling)}}},
                       {"total_slots", limits_.sequences},
                       {"model_alias", model_.name},
                       {"chat_template", hosted_.template_text()},
                       {"bos_token", special_text(tokenizer, tokenizer.bos())},
                       {"eos_token", special_text(tokenizer, tokenizer.eos())},
                       {"build_info", std::string("leq ") + kVersion}});
}

// The reply is written as text directly, because a tree of JSON values would take far more memory.
void ModelApi::tokenize(HttpExchange& exchange, JsonNode body) const {
  const JsonNode content = given_field(body, "content");
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

void ModelApi::detokenize(HttpExchange& exchange, JsonNode body) const {
  const JsonNode tokens = given_field(body, "tokens");
  if (!tokens || !tokens.is_array()) field_error("tokens", "an array of ids", tokens);
  std::vector<Token> ids;
  for (const JsonNode one : tokens) {
    const auto id = one.is_number() ? one.whole() : std::nullopt;
    if (!id || *id < 0 || static_cast<std::size_t>(*id) >= model_.tokenizer.size()) {
      field_error("tokens", "ids of the model", one);
    }
    ids.push_back(static_cast<Token>(*id));
  }
  send_json(exchange, Json::object({{"content", model_.tokenizer.decode(ids, true)}}));
}

void ModelApi::apply_template(HttpExchange& exchange, JsonNode body) const {
  send_json(exchange, Json::object({{"prompt", joined(render_chat(body, model_))}}));
}

std::size_t ModelApi::tokens_of(JsonNode chat) const {
  return model_.tokenizer.encode_parts(render_chat(chat, model_)).size();
}

void ModelApi::count_tokens(HttpExchange& exchange, JsonNode body) const {
  send_json(exchange, {{"object", "response.input_tokens"}, {"input_tokens", tokens_of(body)}});
}

void ModelApi::count_responses_tokens(HttpExchange& exchange, JsonNode body) const {
  const ForeignChat chat = chat_of_responses(body);
  send_json(exchange,
            {{"object", "response.input_tokens"}, {"input_tokens", tokens_of(chat.body)}});
}

void ModelApi::count_messages_tokens(HttpExchange& exchange, JsonNode body) const {
  const ForeignChat chat = chat_of_messages(body);
  send_json(exchange, Json::object({{"input_tokens", tokens_of(chat.body)}}));
}

}  // namespace leq
