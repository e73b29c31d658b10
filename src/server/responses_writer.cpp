#include "server/responses_writer.h"

#include <utility>

namespace leq {
namespace {

const char* delta_type(bool reasoning) {
  return reasoning ? "response.reasoning_text" : "response.output_text";
}

// The request's member unchanged, or `fallback` if it is absent.
Json echoed(JsonNode asked, std::string_view name, Json fallback) {
  const JsonNode found = asked.find(name);
  return found && !found.is_null() ? found.value() : std::move(fallback);
}

}  // namespace

ResponsesWriter::ResponsesWriter(const GenerationCall& call, const ApiModel& model, std::string id,
                                 std::int64_t created)
    : call_(call), model_(model), id_("resp_" + std::move(id)), created_(created) {}

std::string ResponsesWriter::event(const std::string& type, Json members) {
  members["type"] = type;
  members["sequence_number"] = events_++;
  return sent_event(type, members.dump_any());
}

// An event for the current item and its only part.
std::string ResponsesWriter::item_event(const std::string& type, Json members, bool with_part) {
  members["item_id"] = item_.id;
  members["output_index"] = output_.size();
  if (with_part) members["content_index"] = 0;
  return event(type, std::move(members));
}

Json ResponsesWriter::part_json(const std::string& text) const {
  if (item_.kind == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json ResponsesWriter::item_json(bool is_whole) const {
  const char* status = is_whole ? "completed" : "incomplete";
  if (item_.kind == Kind::call) {
    return {{"type", "function_call"}, {"id", item_.id},          {"call_id", item_.call_id},
            {"name", item_.name},      {"arguments", item_.text}, {"status", status}};
  }
  Json content = Json::array({part_json(item_.text)});
  if (item_.kind == Kind::reasoning) {
    return {{"type", "reasoning"},          {"id", item_.id},
            {"summary", Json::array()},     {"content", std::move(content)},
            {"encrypted_content", nullptr}, {"status", status}};
  }
  return {{"type", "message"},
          {"id", item_.id},
          {"role", "assistant"},
          {"content", std::move(content)},
          {"status", status}};
}

// Closes the current item, if there is one, and opens the next.
std::string ResponsesWriter::open(Kind kind, const Choice::Call* call, std::size_t index) {
  std::string events = close(true);
  item_ = {.kind = kind, .call = index};
  item_.id = (kind == Kind::reasoning ? "rs_" : kind == Kind::text ? "msg_" : "fc_") + random_id();
  if (call != nullptr) {
    item_.name = call->name;
    item_.call_id = call->id;
  }
  Json begun = item_json(true);
  begun["status"] = "in_progress";
  if (kind != Kind::call) begun["content"] = Json::array();
  events += event("response.output_item.added",
                  {{"output_index", output_.size()}, {"item", std::move(begun)}});
  if (kind == Kind::call) return events;
  return events + item_event("response.content_part.added", {{"part", part_json("")}}, true);
}

std::string ResponsesWriter::close(bool is_whole) {
  if (item_.kind == Kind::none) return "";
  std::string events;
  if (item_.kind == Kind::call) {
    events = item_event("response.function_call_arguments.done",
                        {{"arguments", item_.text}, {"name", item_.name}}, false);
  } else {
    Json done = {{"text", item_.text}};
    if (item_.kind == Kind::text) done["logprobs"] = Json::array();
    events = item_event(std::string(delta_type(item_.kind == Kind::reasoning)) + ".done",
                        std::move(done), true);
    events += item_event("response.content_part.done", {{"part", part_json(item_.text)}}, true);
  }
  Json item = item_json(is_whole);
  events += event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
  output_.push_back(std::move(item));
  item_ = {};
  return events;
}

std::string ResponsesWriter::add(Kind kind, const std::string& text) {
  if (text.empty()) return "";
  std::string events;
  if (item_.kind != kind) events = open(kind, nullptr, 0);
  item_.text += text;
  Json members = {{"delta", text}};
  if (kind == Kind::text) members["logprobs"] = Json::array();
  return events + item_event(std::string(delta_type(kind == Kind::reasoning)) + ".delta",
                             std::move(members), true);
}

Json ResponsesWriter::response_json(const std::string& status) const {
  const JsonNode asked = call_.asked;
  Json text = echoed(asked, "text", Json::object());
  if (!text.is_object() || !text.contains("format")) {
    text = {{"format", Json::object({{"type", "text"}})}};
  }
  Json json = {
      {"id", id_},
      {"object", "response"},
      {"created_at", created_},
      {"status", status},
      {"error", error_},
      {"incomplete_details", incomplete_},
      {"instructions", echoed(asked, "instructions", nullptr)},
      {"max_output_tokens", echoed(asked, "max_output_tokens", nullptr)},
      {"metadata", echoed(asked, "metadata", Json::object())},
      {"model", model_.name},
      {"output", output_},
      {"parallel_tool_calls", echoed(asked, "parallel_tool_calls", true)},
      {"previous_response_id", nullptr},
      {"reasoning", echoed(asked, "reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
      {"store", false},
      {"temperature", static_cast<double>(call_.sampling.temperature)},
      {"text", std::move(text)},
      {"tool_choice", echoed(asked, "tool_choice", "auto")},
      {"tools", echoed(asked, "tools", Json::array())},
      {"top_p", static_cast<double>(call_.sampling.top_p)},
      {"truncation", "disabled"},
      {"usage", usage_}};
  if (!call_.notes.empty()) json["warnings"] = warnings_json(call_);
  return json;
}

std::string ResponsesWriter::begin(const std::vector<Choice>&) {
  std::string events = event("response.created", {{"response", response_json("in_progress")}});
  events += event("response.in_progress", {{"response", response_json("in_progress")}});
  return events;
}

std::string ResponsesWriter::more(const Choice& choice, const ChoicePiece& piece) {
  std::string events = add(Kind::reasoning, piece.reasoning);
  events += add(Kind::text, piece.content);
  for (const ToolCallPiece& call : piece.calls) {
    if (item_.kind != Kind::call || item_.call != call.index) {
      events += open(Kind::call, &choice.calls[call.index], call.index);
    }
    if (call.arguments.empty()) continue;
    item_.text += call.arguments;
    events +=
        item_event("response.function_call_arguments.delta", {{"delta", call.arguments}}, false);
  }
  return events;
}

// Ends the reply; a truncated item gets the status "incomplete".
std::string ResponsesWriter::end(const Choice& choice) {
  const StopReason reason = choice.end.stopped;
  return close(reason == StopReason::end_token || reason == StopReason::stop_string);
}

void ResponsesWriter::set_end(const std::vector<Choice>& choices) {
  const TokenCounts counts = count_tokens(call_, choices);
  usage_ = {{"input_tokens", counts.prompt},
            {"input_tokens_details", {{"cached_tokens", counts.cached}}},
            {"output_tokens", counts.reply},
            {"output_tokens_details", {{"reasoning_tokens", counts.reasoning}}},
            {"total_tokens", counts.prompt + counts.reply}};
  const Choice& choice = choices.front();
  const StopReason reason = choice.end.stopped;
  const bool ended = reason == StopReason::end_token || reason == StopReason::stop_string;
  status_ = ended ? "completed" : "incomplete";
  if (ended) return;
  const std::string why =
      choice.interruption.empty() ? "max_output_tokens" : std::string(choice.interruption);
  incomplete_ = Json::object({{"reason", why}});
}

std::string ResponsesWriter::finish(const std::vector<Choice>& choices) {
  set_end(choices);
  return event("response." + status_, {{"response", response_json(status_)}});
}

std::string ResponsesWriter::failed(const Error& error) {
  std::string events = close(false);
  error_ = {{"code", "server_error"}, {"message", error.what()}};
  return events + event("response.failed", {{"response", response_json("failed")}});
}

std::string ResponsesWriter::whole(const std::vector<Choice>& choices) {
  const Choice& choice = choices.front();
  ChoicePiece all = {.reasoning = choice.reasoning, .content = choice.content};
  for (std::size_t i = 0; i < choice.calls.size(); ++i) {
    all.calls.push_back({i, choice.calls[i].name, choice.calls[i].arguments});
  }
  (void)more(choice, all);
  (void)end(choice);
  set_end(choices);
  return response_json(status_).dump_any();
}

}  // namespace leq
