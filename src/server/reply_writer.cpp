#include "server/reply_writer.h"

#include <utility>

#include "base/version.h"

namespace leq {
namespace {

std::string_view finish_reason(const Choice& choice) {
  const StopReason reason = choice.end.stopped;
  const bool ended = reason == StopReason::end_token || reason == StopReason::stop_string;
  if (ended) return choice.calls.empty() ? "stop" : "tool_calls";
  return "length";
}

// As llama-server has it.
std::string_view stop_type(StopReason reason) {
  if (reason == StopReason::end_token) return "eos";
  return reason == StopReason::stop_string ? "word" : "limit";
}

Json tool_call_json(const Choice::Call& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// A call's first piece says what it is, the others add to its arguments.
Json tool_piece_json(const ToolCallPiece& piece, const Choice& choice) {
  Json function = Json::object({{"arguments", piece.arguments}});
  Json call = Json::object({{"index", piece.index}});
  if (!piece.name.empty()) {
    function["name"] = piece.name;
    call["id"] = choice.calls[piece.index].id;
    call["type"] = "function";
  }
  call["function"] = std::move(function);
  return call;
}

Json bytes_json(std::string_view text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned>(static_cast<unsigned char>(c)));
  return bytes;
}

double milliseconds(double seconds) { return seconds * 1000; }

}  // namespace

Json timings_json(const EngineReply& reply) {
  return {{"cache_n", reply.cached_tokens},
          {"prompt_n", reply.fed_tokens},
          {"prompt_ms", milliseconds(reply.prompt_seconds)},
          {"prompt_per_second", reply.prompt_tokens_per_second()},
          {"predicted_n", reply.tokens.size()},
          {"predicted_ms", milliseconds(reply.reply_seconds)},
          {"predicted_per_second", reply.reply_tokens_per_second()}};
}

ReplyWriter::ReplyWriter(const GenerationCall& call, const ApiModel& model, std::string id,
                         std::int64_t created)
    : call_(call), model_(model), id_(std::move(id)), created_(created) {}

Json ReplyWriter::frame(bool chunk) const {
  const bool chat = call_.style == CallStyle::chat;
  const char* object =
      chat ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion";
  return {{"id", (chat ? "chatcmpl-" : "cmpl-") + id_},
          {"object", object},
          {"created", created_},
          {"model", model_.name},
          {"system_fingerprint", std::string("leq-") + kVersion}};
}

Json ReplyWriter::token_json(const TokenLogprob& token) const {
  const std::string text = model_.tokenizer.token_bytes(token.id);
  Json json = {{"token", text}, {"logprob", token.logprob}, {"bytes", bytes_json(text)}};
  if (call_.style == CallStyle::native) json["id"] = token.id;
  return json;
}

Json ReplyWriter::logprobs_json(const std::vector<TokenLogprobs>& tokens,
                                std::int64_t offset) const {
  if (call_.style == CallStyle::text) {
    Json texts = Json::array(), values = Json::array(), tops = Json::array(),
         offsets = Json::array();
    for (const TokenLogprobs& token : tokens) {
      const std::string text = model_.tokenizer.token_bytes(token.id);
      Json top = Json::object();
      for (const TokenLogprob& one : token.top) {
        top[model_.tokenizer.token_bytes(one.id)] = one.logprob;
      }
      texts.push_back(text);
      values.push_back(token.logprob);
      tops.push_back(std::move(top));
      offsets.push_back(offset);
      offset += std::ssize(text);
    }
    return {{"tokens", std::move(texts)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }
  Json list = Json::array();
  for (const TokenLogprobs& token : tokens) {
    Json one = token_json(token), top = Json::array();
    for (const TokenLogprob& other : token.top) top.push_back(token_json(other));
    one["top_logprobs"] = std::move(top);
    list.push_back(std::move(one));
  }
  if (call_.style == CallStyle::native) return list;
  return {{"content", std::move(list)}, {"refusal", nullptr}};
}

Json ReplyWriter::chunk_of(const Choice& choice, Json content, Json finish) const {
  const bool chat = call_.style == CallStyle::chat;
  Json one = {{"index", choice.index}, {"finish_reason", std::move(finish)}, {"logprobs", nullptr}};
  one[chat ? "delta" : "text"] = std::move(content);
  Json json = frame(true);
  json["choices"] = Json::array({std::move(one)});
  // Only the last chunk of a stream counts tokens; clients expect the name in all.
  if (call_.include_usage) json["usage"] = nullptr;
  return json;
}

std::string ReplyWriter::begin(const Choice& choice) const {
  return chunk_of(choice, {{"role", "assistant"}, {"content", ""}}, nullptr).dump_any();
}

std::string ReplyWriter::more(const Choice& choice, const ChoicePiece& piece) const {
  const bool probable = call_.top_logprobs >= 0 && !piece.logprobs.empty();
  if (call_.style == CallStyle::native) {
    Json json = {{"index", choice.index},
                 {"content", piece.content},
                 {"stop", false},
                 {"tokens", piece.tokens}};
    if (probable) json["completion_probabilities"] = logprobs_json(piece.logprobs, 0);
    return json.dump_any();
  }
  Json content = piece.content;
  if (call_.style == CallStyle::chat) {
    content = Json::object();
    if (!piece.content.empty()) content["content"] = piece.content;
    if (!piece.thoughts.empty()) content["reasoning_content"] = piece.thoughts;
    Json calls = Json::array();
    for (const ToolCallPiece& call : piece.calls) calls.push_back(tool_piece_json(call, choice));
    if (!piece.calls.empty()) content["tool_calls"] = std::move(calls);
  }
  Json json = chunk_of(choice, std::move(content), nullptr);
  if (probable) {
    json["choices"][0]["logprobs"] = logprobs_json(piece.logprobs, choice.logprob_bytes);
  }
  return json.dump_any();
}

std::string ReplyWriter::end(const Choice& choice) const {
  if (call_.style == CallStyle::native) return native_end(choice).dump_any();
  Json nothing = call_.style == CallStyle::chat ? Json::object() : Json("");
  Json json = chunk_of(choice, std::move(nothing), Json(finish_reason(choice)));
  json["timings"] = timings_json(choice.end);
  return json.dump_any();
}

Json ReplyWriter::native_end(const Choice& choice) const {
  const EngineReply& end = choice.end;
  return {{"index", choice.index},
          {"content", call_.stream ? "" : choice.content},
          {"tokens", call_.return_tokens && !call_.stream ? Json(choice.tokens) : Json::array()},
          {"stop", true},
          {"model", model_.name},
          {"stop_type", stop_type(end.stopped)},
          {"stopping_word", end.stop_string},
          {"tokens_predicted", end.tokens.size()},
          {"tokens_evaluated", call_.prompts[choice.prompt].size()},
          {"tokens_cached", end.cached_tokens},
          {"truncated", end.stopped == StopReason::context_full},
          {"timings", timings_json(end)}};
}

Json ReplyWriter::usage_json(const std::vector<Choice>& choices) const {
  std::size_t prompt_tokens = 0, reply_tokens = 0;
  std::int64_t cached = 0;
  for (const auto& prompt : call_.prompts) prompt_tokens += prompt.size();
  for (const Choice& choice : choices) {
    reply_tokens += choice.end.tokens.size();
    if (choice.index % call_.choices == 0) cached += choice.end.cached_tokens;
  }
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", reply_tokens},
          {"total_tokens", prompt_tokens + reply_tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

std::string ReplyWriter::usage(const std::vector<Choice>& choices) const {
  Json json = frame(true);
  json["choices"] = Json::array();
  json["usage"] = usage_json(choices);
  return json.dump_any();
}

Json ReplyWriter::whole_choice(const Choice& choice) const {
  Json json = {{"index", choice.index},
               {"finish_reason", finish_reason(choice)},
               {"logprobs", call_.top_logprobs >= 0 ? logprobs_json(choice.logprobs, 0) : Json()}};
  if (call_.style == CallStyle::text) {
    json["text"] = choice.content;
    return json;
  }
  Json message = {{"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}};
  if (!choice.thoughts.empty()) message["reasoning_content"] = choice.thoughts;
  if (!choice.calls.empty()) {
    Json calls = Json::array();
    for (const Choice::Call& call : choice.calls) calls.push_back(tool_call_json(call));
    message["tool_calls"] = std::move(calls);
    if (choice.content.empty()) message["content"] = nullptr;
  }
  json["message"] = std::move(message);
  return json;
}

std::string ReplyWriter::whole(const std::vector<Choice>& choices) const {
  if (call_.style == CallStyle::native) {
    Json list = Json::array();
    for (const Choice& choice : choices) {
      Json one = native_end(choice);
      if (call_.top_logprobs >= 0) {
        one["completion_probabilities"] = logprobs_json(choice.logprobs, 0);
      }
      list.push_back(std::move(one));
    }
    return (choices.size() == 1 ? list[0] : list).dump_any();
  }
  Json json = frame(false), list = Json::array();
  for (const Choice& choice : choices) list.push_back(whole_choice(choice));
  json["choices"] = std::move(list);
  json["usage"] = usage_json(choices);
  if (choices.size() == 1) json["timings"] = timings_json(choices[0].end);
  return json.dump_any();
}

}  // namespace leq
