#include "server/messages_writer.h"

#include <utility>

#include "server/api_error.h"

namespace leq {
namespace {

// Returns null while the reply is being generated.
Json stop_reason(const Choice& choice) {
  switch (choice.end.stopped) {
    case StopReason::none:
      return nullptr;
    case StopReason::end_token:
      return choice.calls.empty() ? "end_turn" : "tool_use";
    case StopReason::stop_string:
      return choice.calls.empty() ? "stop_sequence" : "tool_use";
    case StopReason::context_full:
      return "model_context_window_exceeded";
    default:
      break;
  }
  return choice.interruption.empty() ? Json("max_tokens") : Json(choice.interruption);
}

Json stop_sequence(const Choice& choice) {
  return choice.end.stop_string.empty() ? Json() : Json(choice.end.stop_string);
}

// The id of a call in Anthropic's format.
std::string tool_use_id(const Choice::Call& call) {
  return "toolu_" + call.id.substr(call.id.find('_') + 1);
}

}  // namespace

MessagesWriter::MessagesWriter(const GenerationCall& call, const ApiModel& model, std::string id)
    : call_(call), model_(model), id_("msg_" + std::move(id)) {}

std::string MessagesWriter::event(const std::string& type, Json members) const {
  members["type"] = type;
  return sent_event(type, members.dump_any());
}

Json MessagesWriter::message_json(const Choice& choice, Json content) const {
  Json json = {{"id", id_},
               {"type", "message"},
               {"role", "assistant"},
               {"model", model_.name},
               {"content", std::move(content)},
               {"stop_reason", stop_reason(choice)},
               {"stop_sequence", stop_sequence(choice)}};
  if (!call_.notes.empty()) json["warnings"] = warnings_json(call_);
  return json;
}

// Prompt tokens found in the KV cache are counted separately.
Json MessagesWriter::usage_json(const std::vector<Choice>& choices) const {
  const TokenCounts counts = count_tokens(call_, choices);
  return {{"input_tokens", counts.prompt - counts.cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", counts.cached},
          {"output_tokens", counts.reply}};
}

std::string MessagesWriter::begin(const std::vector<Choice>& choices) {
  Json message = message_json(choices.front(), Json::array());
  message["usage"] = usage_json(choices);
  return event("message_start", {{"message", std::move(message)}}) + ping();
}

std::string MessagesWriter::ping() const { return event("ping", Json::object()); }

std::string MessagesWriter::open(Kind kind, Json block) {
  std::string events = close();
  kind_ = kind;
  return events +
         event("content_block_start", {{"index", index_}, {"content_block", std::move(block)}});
}

std::string MessagesWriter::close() {
  if (kind_ == Kind::none) return "";
  std::string events;
  if (kind_ == Kind::reasoning) {
    const Json signature = {{"type", "signature_delta"}, {"signature", "none"}};
    events = event("content_block_delta", {{"index", index_}, {"delta", signature}});
  }
  events += event("content_block_stop", {{"index", index_}});
  kind_ = Kind::none;
  ++index_;
  return events;
}

std::string MessagesWriter::add(Kind kind, const char* type, const char* member,
                                const std::string& text) {
  if (text.empty()) return "";
  std::string events;
  if (kind_ != kind) {
    Json block = {{"type", kind == Kind::reasoning ? "thinking" : "text"}, {member, ""}};
    if (kind == Kind::reasoning) block["signature"] = "";
    events = open(kind, std::move(block));
  }
  return events + event("content_block_delta",
                        {{"index", index_}, {"delta", {{"type", type}, {member, text}}}});
}

std::string MessagesWriter::more(const Choice& choice, const ChoicePiece& piece) {
  std::string events = add(Kind::reasoning, "thinking_delta", "thinking", piece.reasoning);
  events += add(Kind::text, "text_delta", "text", piece.content);
  for (const ToolCallPiece& call : piece.calls) {
    if (kind_ != Kind::call || call_index_ != call.index) {
      const Choice::Call& begun = choice.calls[call.index];
      events += open(Kind::call, {{"type", "tool_use"},
                                  {"id", tool_use_id(begun)},
                                  {"name", begun.name},
                                  {"input", Json::object()}});
      call_index_ = call.index;
    }
    if (call.arguments.empty()) continue;
    const Json delta = {{"type", "input_json_delta"}, {"partial_json", call.arguments}};
    events += event("content_block_delta", {{"index", index_}, {"delta", delta}});
  }
  return events;
}

std::string MessagesWriter::end(const Choice&) { return close(); }

std::string MessagesWriter::finish(const std::vector<Choice>& choices) {
  const Choice& choice = choices.front();
  const Json delta = {{"stop_reason", stop_reason(choice)},
                      {"stop_sequence", stop_sequence(choice)}};
  return event("message_delta", {{"delta", delta}, {"usage", usage_json(choices)}}) +
         event("message_stop", Json::object());
}

std::string MessagesWriter::failed(const Error& error) {
  return close() + sent_event("error", anthropic_error_json(500, error.what()));
}

std::string MessagesWriter::whole(const std::vector<Choice>& choices) {
  const Choice& choice = choices.front();
  Json content = Json::array();
  if (!choice.reasoning.empty()) {
    content.push_back(
        {{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", "none"}});
  }
  if (!choice.content.empty()) {
    content.push_back({{"type", "text"}, {"text", choice.content}});
  }
  for (const Choice::Call& call : choice.calls) {
    Json input = Json::object();
    try {
      input = parse_json(call.arguments, "the call");
    } catch (const Error&) {  // from a truncated call
    }
    content.push_back({{"type", "tool_use"},
                       {"id", tool_use_id(call)},
                       {"name", call.name},
                       {"input", std::move(input)}});
  }
  Json json = message_json(choice, std::move(content));
  json["usage"] = usage_json(choices);
  return json.dump_any();
}

}  // namespace leq
