// Writes replies of /v1/chat/completions, /v1/completions and /completion.
#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/version.h"
#include "server/dialects.h"

namespace leq {
namespace {

std::string_view finish_reason(const Choice& choice) {
  if (choice.is_complete()) return choice.calls.empty() ? "stop" : "tool_calls";
  return "length";
}

// The reason why a reply ended, under llama-server's names.
std::string_view stop_type(const Choice& choice) {
  const StopReason reason = choice.end.stopped;
  if (reason == StopReason::end_token) return "eos";
  return reason == StopReason::stop_string ? "word" : "limit";
}

// The first piece of a call has its id and name; later pieces extend its arguments.
Json tool_piece_json(const ToolCallPiece& piece, const Choice& choice) {
  const Choice::Call& whole = choice.calls[piece.index];
  const char* kind = whole.is_custom() ? "custom" : "function";
  Json function = Json::object({{whole.is_custom() ? "input" : "arguments", piece.arguments}});
  Json call = Json::object({{"index", piece.index}});
  if (!piece.name.empty()) {
    function["name"] = whole.client_name();
    call["id"] = whole.id;
    call["type"] = kind;
  }
  call[kind] = std::move(function);
  return call;
}

Json bytes_json(std::string_view text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned>(static_cast<unsigned char>(c)));
  return bytes;
}

// Returns null for the first token of a text, which has no log probability.
Json logprob_json(const TokenLogprob& token) {
  return std::isnan(token.logprob) ? Json() : Json(token.logprob);
}

// A token's text as a JSON string; bytes that are not UTF-8 are escaped as in OpenAI's API.
std::string shown_token(const std::string& bytes) {
  std::string_view rest = bytes;
  while (const std::size_t length = utf8_length(rest)) rest.remove_prefix(length);
  if (rest.empty()) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "\\x";
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string data(const Json& json) { return sent_event(json.dump_any()); }

// Times in milliseconds and rates of a reply, under llama-server's names.
Json timings_json(const EngineReply& reply) {
  constexpr double kMilliseconds = 1000;  // per second
  return {{"cache_n", reply.cached_tokens},
          {"prompt_n", reply.fed_tokens},
          {"prompt_ms", kMilliseconds * reply.prompt_seconds},
          {"prompt_per_second", reply.prompt_tokens_per_second()},
          {"predicted_n", reply.tokens.size()},
          {"predicted_ms", kMilliseconds * reply.reply_seconds},
          {"predicted_per_second", reply.reply_tokens_per_second()}};
}

class OpenAiWriter : public ReplyWriter {
 public:
  using ReplyWriter::ReplyWriter;

  std::string begin(const std::vector<Choice>& choices) override {
    std::string events;
    if (call_.style != CallStyle::chat) return events;
    for (const Choice& choice : choices) {
      events += data(chunk_of(choice, {{"role", "assistant"}, {"content", ""}}, nullptr));
    }
    return events;
  }

  std::string more(const Choice& choice, const ChoicePiece& piece) override {
    const bool probable = call_.top_logprobs >= 0 && !piece.logprobs.empty();
    if (call_.style == CallStyle::native) {
      Json json = {{"index", choice.index},
                   {"content", piece.content},
                   {"stop", false},
                   {"tokens", piece.tokens}};
      if (probable) json["completion_probabilities"] = logprobs_json(piece.logprobs);
      return data(json);
    }
    Json content = piece.content;
    if (call_.style == CallStyle::chat) {
      content = Json::object();
      if (!piece.content.empty()) content["content"] = piece.content;
      if (!piece.reasoning.empty()) content["reasoning_content"] = piece.reasoning;
      Json calls = Json::array();
      for (const ToolCallPiece& call : piece.calls) calls.push_back(tool_piece_json(call, choice));
      if (!piece.calls.empty()) content["tool_calls"] = std::move(calls);
    }
    Json json = chunk_of(choice, std::move(content), nullptr);
    if (probable) json["choices"][0]["logprobs"] = logprobs_json(piece.logprobs);
    return data(json);
  }

  std::string end(const Choice& choice) override {
    if (call_.style == CallStyle::native) return data(native_end(choice));
    Json nothing = call_.style == CallStyle::chat ? Json::object() : Json("");
    Json json = chunk_of(choice, std::move(nothing), Json(finish_reason(choice)));
    json["timings"] = timings_json(choice.end);
    add_warnings(json);
    return data(json);
  }

  std::string finish(const std::vector<Choice>& choices) override {
    if (call_.style == CallStyle::native) return "";
    std::string events;
    if (call_.include_usage) {
      Json json = frame(true);
      json["choices"] = Json::array();
      json["usage"] = usage_json(choices);
      events = data(json);
    }
    return events + sent_event("[DONE]");
  }

  std::string failed(const Error& error) override {
    const std::string event = sent_event(error_json(500, error.what(), "", ""));
    return call_.style == CallStyle::native ? event : event + sent_event("[DONE]");
  }

  std::string whole(const std::vector<Choice>& choices) override {
    if (call_.style == CallStyle::native) {
      Json list = Json::array();
      for (const Choice& choice : choices) {
        Json one = native_end(choice);
        if (call_.top_logprobs >= 0) {
          one["completion_probabilities"] = logprobs_json(choice.logprobs);
        }
        list.push_back(std::move(one));
      }
      return (choices.size() == 1 ? list[0] : list).dump_any();
    }
    Json json = frame(false), list = Json::array();
    for (const Choice& choice : choices) list.push_back(whole_choice(choice));
    json["choices"] = std::move(list);
    json["usage"] = usage_json(choices);
    add_warnings(json);
    if (choices.size() == 1) json["timings"] = timings_json(choices[0].end);
    return json.dump_any();
  }

 private:
  Json frame(bool chunk) const {
    const bool chat = call_.style == CallStyle::chat;
    const char* object =
        chat ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion";
    return {{"id", (chat ? "chatcmpl-" : "cmpl-") + id_},
            {"object", object},
            {"created", created_},
            {"model", model_.name},
            {"system_fingerprint", std::string("leq-") + kVersion}};
  }

  Json chunk_of(const Choice& choice, Json content, Json finish) const {
    const bool chat = call_.style == CallStyle::chat;
    Json one = {
        {"index", choice.index}, {"finish_reason", std::move(finish)}, {"logprobs", nullptr}};
    one[chat ? "delta" : "text"] = std::move(content);
    Json json = frame(true);
    json["choices"] = Json::array({std::move(one)});
    // Only the last chunk of a stream has usage, but clients expect the member in all chunks.
    if (call_.include_usage) json["usage"] = nullptr;
    return json;
  }

  Json whole_choice(const Choice& choice) const {
    Json json = {{"index", choice.index},
                 {"finish_reason", finish_reason(choice)},
                 {"logprobs", call_.top_logprobs >= 0 ? logprobs_json(choice.logprobs) : Json()}};
    if (call_.style == CallStyle::text) {
      json["text"] = choice.content;
      return json;
    }
    Json message = {{"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}};
    if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
    if (!choice.calls.empty()) {
      Json calls = Json::array();
      for (const Choice::Call& call : choice.calls) {
        const char* kind = call.is_custom() ? "custom" : "function";
        calls.push_back({{"id", call.id},
                         {"type", kind},
                         {kind,
                          {{"name", call.client_name()},
                           {call.is_custom() ? "input" : "arguments", call.arguments}}}});
      }
      message["tool_calls"] = std::move(calls);
      if (choice.content.empty()) message["content"] = nullptr;
    }
    json["message"] = std::move(message);
    return json;
  }

  Json native_end(const Choice& choice) const {
    const EngineReply& end = choice.end;
    const bool with_tokens = call_.return_tokens && !call_.stream;
    Json json = {{"index", choice.index},
                 {"content", call_.stream ? "" : choice.content},
                 {"tokens", with_tokens ? Json(choice.tokens) : Json::array()},
                 {"stop", true},
                 {"model", model_.name},
                 {"stop_type", stop_type(choice)},
                 {"stopping_word", end.stop_string},
                 {"tokens_predicted", end.tokens.size()},
                 {"tokens_evaluated", call_.prompts[choice.prompt].size()},
                 {"tokens_cached", end.cached_tokens},
                 {"truncated", end.stopped == StopReason::context_full},
                 {"timings", timings_json(end)}};
    add_warnings(json);
    return json;
  }

  Json usage_json(const std::vector<Choice>& choices) const {
    const TokenCounts counts = count_tokens(choices);
    Json usage = {{"prompt_tokens", counts.prompt},
                  {"completion_tokens", counts.reply},
                  {"total_tokens", counts.prompt + counts.reply},
                  {"prompt_tokens_details", {{"cached_tokens", counts.cached}}}};
    if (counts.reasoning > 0) {
      usage["completion_tokens_details"] = Json::object({{"reasoning_tokens", counts.reasoning}});
    }
    return usage;
  }

  Json logprobs_json(const std::vector<PlacedLogprobs>& tokens) const {
    if (call_.style == CallStyle::text) return text_logprobs(tokens);
    Json list = Json::array();
    for (const PlacedLogprobs& token : tokens) {
      Json one = token_json(token), top = Json::array();
      for (const TokenLogprob& other : token.top) top.push_back(token_json(other));
      one["top_logprobs"] = std::move(top);
      list.push_back(std::move(one));
    }
    if (call_.style == CallStyle::native) return list;
    return {{"content", std::move(list)}, {"refusal", nullptr}};
  }

  Json text_logprobs(const std::vector<PlacedLogprobs>& tokens) const {
    Json texts = Json::array(), values = Json::array(), tops = Json::array(),
         offsets = Json::array();
    for (const PlacedLogprobs& token : tokens) {
      texts.push_back(shown_token(token.text));
      values.push_back(logprob_json(token));
      tops.push_back(std::isnan(token.logprob) ? Json() : tops_json(token.top));
      offsets.push_back(token.offset);
    }
    return {{"tokens", std::move(texts)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }

  Json token_json(const TokenLogprob& token) const {
    const std::string text = model_.tokenizer.token_bytes(token.id);
    Json json = {{"token", text}, {"logprob", logprob_json(token)}, {"bytes", bytes_json(text)}};
    if (call_.style == CallStyle::native) json["id"] = token.id;
    return json;
  }

  // Keys are made unique, because two tokens may have the same text.
  Json tops_json(const std::vector<TokenLogprob>& top) const {
    Json tops = Json::object();
    for (const TokenLogprob& one : top) {
      std::string key = shown_token(model_.tokenizer.token_bytes(one.id));
      if (tops.contains(key)) key = "token_id:" + std::to_string(one.id);
      tops[key] = logprob_json(one);
    }
    return tops;
  }
};

}  // namespace

std::unique_ptr<ReplyWriter> openai_writer(const GenerationCall& call, const ApiModel& model) {
  return std::make_unique<OpenAiWriter>(call, model);
}

}  // namespace leq
