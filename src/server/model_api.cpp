#include "server/model_api.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "base/version.h"
#include "server/dialects.h"

namespace leq {
namespace {

std::string special_text(const Tokenizer& tokenizer, Token id) {
  if (id == kNoToken) return "";
  const Token ids[] = {id};
  return tokenizer.decode(ids, true);
}

// The result of `read`, whose errors name members as the client does.
template <class Read>
auto with_names(const ForeignChat& foreign, const Read& read) {
  try {
    return read();
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    throw Error(foreign.in_its_names(error.marked()), error.kind());
  }
}

// A family in the form of GGUF's architectures: "qwen3.5" for "Qwen 3.5".
std::string architecture_text(std::string_view family) {
  std::string text;
  for (const char c : family) {
    if (c != ' ') text += ascii_lower(c);
  }
  return text;
}

// "134.5M", "6.7B".
std::string parameters_text(std::int64_t count) {
  const double millions = static_cast<double>(count) / 1e6;
  return millions < 1000 ? fixed(millions, 1) + "M" : fixed(millions / 1e3, 1) + "B";
}

}  // namespace

void send_json(HttpExchange& exchange, const Json& json) {
  HttpReply reply;
  reply.body = json.dump_any();
  exchange.reply(reply);
}

void ModelApi::generate(HttpExchange& exchange, JsonNode body, CallStyle style) const {
  const ForeignChat foreign = foreign_chat(style, body);
  const JsonNode asked = foreign.body.is_null() ? body : JsonNode(foreign.body);
  const bool is_raw = style == CallStyle::ollama_generate && given_field(asked, "prompt");
  GenerationCall call = with_names(foreign, [&] {
    return read_generation_call(is_raw ? CallStyle::text : style, asked, model_,
                                [&] { return !exchange.client_is_there(); });
  });
  call.style = style;
  call.asked = body;
  call.aliases = foreign.aliases;
  for (std::string& note : call.notes) note = foreign.in_its_names(note);
  call.notes.insert(call.notes.begin(), foreign.notes.begin(), foreign.notes.end());
  answer_generation(exchange, std::move(call), model_, engine_, times_);
}

Json ModelApi::facts() const {
  const Model& model = hosted_.model();
  const ModelConfig& config = model.config();
  return {{"n_vocab", config.vocab},        {"n_ctx_train", config.context},
          {"n_ctx", engine_.context()},     {"n_embd", config.width},
          {"n_params", model.parameters()}, {"size", model.file().file_bytes()},
          {"type", model.type()},           {"family", config.family}};
}

std::vector<Json> ModelApi::slots() const {
  const EngineStatus status = engine_.status();
  std::vector<Json> list;
  for (std::size_t i = 0; i < static_cast<std::size_t>(hosted_.limits().sequences); ++i) {
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
  for (const SamplingParameter& parameter : kSamplingParameters) {
    sampling[parameter.name] = parameter_json(model_.sampling, parameter);
  }
  sampling["n_predict"] = model_.stop.max_tokens;
  const Tokenizer& tokenizer = model_.tokenizer;
  send_json(exchange, {{"default_generation_settings",
                        {{"n_ctx", engine_.context()}, {"params", std::move(sampling)}}},
                       {"total_slots", hosted_.limits().sequences},
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
  send_json(exchange,
            Json::object({{"prompt", joined(render_chat(CallStyle::chat, body, model_))}}));
}

void ModelApi::count_tokens(HttpExchange& exchange, JsonNode body, CallStyle style) const {
  const ForeignChat foreign = foreign_chat(style, body);
  const JsonNode asked = foreign.body.is_null() ? body : JsonNode(foreign.body);
  const auto parts = with_names(foreign, [&] { return render_chat(style, asked, model_); });
  Json counted = Json::object();
  if (style != CallStyle::messages) counted["object"] = "response.input_tokens";
  counted["input_tokens"] = model_.tokenizer.encode_parts(parts).size();
  send_json(exchange, counted);
}

Json ModelApi::ollama_details() const {
  const Model& model = hosted_.model();
  const std::string family = architecture_text(model.config().family);
  return {{"parent_model", ""},
          {"format", model.file().name().ends_with(".gguf") ? "gguf" : "leq"},
          {"family", family},
          {"families", Json(std::vector<std::string>{family})},
          {"parameter_size", parameters_text(model.parameters())},
          {"quantization_level", model.type()}};
}

void ModelApi::ollama_show(HttpExchange& exchange, JsonNode) const {
  const ModelConfig& config = hosted_.model().config();
  std::vector<std::string> capabilities = {"completion"};
  if (model_.chat != nullptr) capabilities.emplace_back("tools");
  if (!model_.style.think_begin.empty()) capabilities.emplace_back("thinking");
  const std::string family = architecture_text(config.family);
  Json about = {{"general.architecture", family},
                {"general.parameter_count", hosted_.model().parameters()}};
  about[family + ".context_length"] = config.context;
  about[family + ".embedding_length"] = config.width;
  about[family + ".block_count"] = config.layer_count();
  Json shown = {{"modelfile", model_.modelfile},       {"parameters", model_.parameters},
                {"template", hosted_.template_text()}, {"modified_at", time_text(model_.created)},
                {"details", ollama_details()},         {"model_info", std::move(about)},
                {"capabilities", Json(capabilities)}};
  if (!model_.system.empty()) shown["system"] = model_.system;
  send_json(exchange, shown);
}

// Slots are saved to files and restored, compatible with llama-server. A slot is only the last text
// generated in it: the text's KV pages are in the cache that all requests share.

void ModelApi::slot_action(HttpExchange& exchange, JsonNode body) const {
  if (!hosted_.slot_files()) {
    throw ApiError(501,
                   "slots are saved nowhere: the server's option slot-save-path names a folder",
                   "not_supported");
  }
  const HttpRequest& request = exchange.request();
  const auto given =
      parse_int(std::string_view(request.path).substr(std::string_view("/slots/").size()));
  if (!given || *given < 0 || *given >= hosted_.limits().sequences) {
    throw ApiError(
        404,
        request.path + ": there are slots 0 to " + std::to_string(hosted_.limits().sequences - 1),
        "not_found");
  }
  const auto slot = static_cast<std::size_t>(*given);
  const std::string action = request.query_value("action");
  if (action == "erase") return send_json(exchange, erase_slot(slot));
  if (action != "save" && action != "restore") {
    field_error("action", "expected ?action=save, restore or erase");
  }
  const auto name = body ? text_field(body, "filename") : std::nullopt;
  if (!name) field_error("filename", "the name of a file");
  send_json(exchange, action == "save" ? save_slot(slot, *name) : restore_slot(slot, *name));
}

Json ModelApi::save_slot(std::size_t slot, const std::string& name) const {
  const Stopwatch watch;
  (void)hosted_.slot_files()->file(name);  // throws on an invalid name before any work
  SavedPrefix prefix;
  engine_.with_idle_sequence(
      [&](Engine& engine) { prefix = engine.save_prefix(engine_.slot_texts()[slot]); });
  const std::size_t tokens = prefix.tokens.size();
  if (tokens == 0) throw ApiError(400, "slot " + std::to_string(slot) + " is empty", "slot_empty");
  const std::uint64_t bytes = hosted_.slot_files()->write(name, prefix);
  return {{"id_slot", slot},
          {"filename", name},
          {"n_saved", tokens},
          {"n_written", bytes},
          {"timings", {{"save_ms", 1e3 * watch.seconds()}}}};
}

Json ModelApi::restore_slot(std::size_t slot, const std::string& name) const {
  const Stopwatch watch;
  const SavedPrefix prefix = hosted_.slot_files()->read(name);
  bool fits = false;
  engine_.with_idle_sequence([&](Engine& engine) {
    fits = engine.load_prefix(prefix, name);
    if (fits) engine_.slot_texts()[slot] = prefix.tokens;
  });
  if (!fits) {
    throw ApiError(503,
                   name + ": its " + std::to_string(prefix.tokens.size()) +
                       " tokens do not fit beside the replies in work",
                   "no_room");
  }
  return {{"id_slot", slot},
          {"filename", name},
          {"n_restored", prefix.tokens.size()},
          {"n_read", std::filesystem::file_size(hosted_.slot_files()->file(name))},
          {"timings", {{"restore_ms", 1e3 * watch.seconds()}}}};
}

Json ModelApi::erase_slot(std::size_t slot) const {
  std::size_t tokens = 0;
  engine_.between_steps([&](Engine& engine) {
    const std::vector<Token> text = std::exchange(engine_.slot_texts()[slot], {});
    (void)engine.erase_prompt(text);
    tokens = text.size();
  });
  return {{"id_slot", slot}, {"n_erased", tokens}};
}

}  // namespace leq
