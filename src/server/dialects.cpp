#include "server/dialects.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <random>
#include <utility>

#include "base/text.h"

namespace leq {
namespace {

Json message(std::string_view role, std::string_view text) {
  return {{"role", role}, {"content", text}};
}

void copy_given(Json& object, std::string_view name, JsonNode value) {
  if (value && !value.is_null()) object[name] = value.value();
}

// Makes {"type": "function", "function": {...}} from the given members of a tool or tool choice.
Json function_of(JsonNode tool, std::span<const CopiedMember> members) {
  Json function = Json::object();
  for (const CopiedMember& member : members) {
    copy_given(function, member.as, given_field(tool, member.name));
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

bool names_tool(JsonNode list, JsonNode tool) {
  const JsonNode own = tool.find("name");
  for (const JsonNode one : list) {
    const JsonNode name = one.find("name");
    if (name.is_string() && own.is_string() && name.text() == own.text()) return true;
  }
  return false;
}

}  // namespace

ChatBuilder::ChatBuilder(JsonNode body) : body_(body) {
  require(body.is_object(), ErrorKind::bad_input, "the request body: expected a JSON object");
}

void ChatBuilder::set_given(std::string_view name, JsonNode value) {
  copy_given(chat_.body, name, value);
}

void ChatBuilder::copy_members(std::span<const CopiedMember> members) {
  for (const CopiedMember& member : members) set_given(member.as, given_field(body_, member.name));
}

bool ChatBuilder::read_tools(const ToolRules& rules, JsonNode allowed) {
  const JsonNode tools = given_field(body_, "tools");
  if (tools && !tools.is_array()) field_error("tools", "an array", tools);
  Json list = Json::array();
  for (const JsonNode tool : tools) {
    if (!tool.is_object()) field_error("tools", "objects", tool);
    const std::string type = text_field(tool, "type").value_or(std::string(rules.fallback));
    if (type != rules.function) {
      chat_.notes.push_back("tools: " + printable(text_field(tool, "name").value_or(type)) +
                            " is left out: only " + std::string(rules.supported) +
                            " are supported, not " + printable(type));
    } else if (!allowed || names_tool(allowed, tool)) {
      list.push_back(function_of(tool, rules.members));
    }
  }
  const bool any = !list.empty();
  if (any) chat_.body["tools"] = std::move(list);
  return any;
}

void ChatBuilder::choose_function(JsonNode choice) {
  static constexpr std::array kName = {CopiedMember{"name", "name"}};
  chat_.body["tool_choice"] = function_of(choice, kName);
}

void ChatBuilder::add(Json text) {
  if (!std::exchange(has_lead_, true) && !lead_.empty()) {
    messages_.push_back(message("system", lead_));
  }
  messages_.push_back(std::move(text));
}

void ChatBuilder::end_turn() {
  if (std::exchange(has_user_, false)) add(message("user", std::exchange(user_, {})));
  if (!std::exchange(has_turn_, false)) return;
  Json turn = message("assistant", std::exchange(said_, {}));
  if (!reasoning_.empty()) turn["reasoning_content"] = std::exchange(reasoning_, {});
  if (!calls_.empty()) turn["tool_calls"] = std::exchange(calls_, Json::array());
  add(std::move(turn));
}

void ChatBuilder::system(std::string_view text) {
  if (!has_lead_ && !has_turn_ && !has_user_) {
    lead_ += (lead_.empty() ? "" : "\n\n") + std::string(text);
    return;
  }
  end_turn();
  add(message("system", text));
}

void ChatBuilder::user(std::string_view text) {
  if (has_turn_) end_turn();
  user_ += (std::exchange(has_user_, true) ? "\n\n" : "") + std::string(text);
}

void ChatBuilder::tool_result(std::string_view id, std::string_view text) {
  end_turn();
  add({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
}

void ChatBuilder::reasoning(std::string_view text) {
  if (has_user_ || !said_.empty() || !calls_.empty()) end_turn();
  has_turn_ = true;
  reasoning_ += text;
}

void ChatBuilder::assistant(std::string_view text) {
  if (has_user_ || !calls_.empty()) end_turn();
  has_turn_ = true;
  said_ += (said_.empty() ? "" : "\n\n") + std::string(text);
}

void ChatBuilder::call(std::string_view id, std::string_view name, std::string_view arguments) {
  has_turn_ = true;
  calls_.push_back(
      {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
}

void ChatBuilder::finish_messages() {
  end_turn();
  if (!has_lead_ && !lead_.empty()) add(message("system", std::exchange(lead_, {})));
  chat_.body["messages"] = std::move(messages_);
}

ReplyWriter::ReplyWriter(const GenerationCall& call, const ApiModel& model)
    : call_(call),
      model_(model),
      id_(random_id()),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

TokenCounts ReplyWriter::count_tokens(const std::vector<Choice>& choices) const {
  TokenCounts counts;
  for (const auto& prompt : call_.prompts) counts.prompt += std::ssize(prompt);
  for (const Choice& choice : choices) {
    counts.reply += std::ssize(choice.end.tokens);
    counts.reasoning += choice.reasoning_tokens;
    if (choice.index % call_.choices == 0) counts.cached += choice.end.cached_tokens;
  }
  return counts;
}

void ReplyWriter::add_warnings(Json& json) const {
  if (!call_.notes.empty()) json["warnings"] = Json(call_.notes);
}

std::string ItemWriter::next(Kind kind, const Choice::Call* call) {
  std::string events = close(true);
  kind_ = kind;
  return events + open(call);
}

std::string ItemWriter::more(const Choice& choice, const ChoicePiece& piece) {
  std::string events;
  const auto add = [&](Kind kind, const std::string& text) {
    if (text.empty()) return;
    if (kind_ != kind) events += next(kind, nullptr);
    events += extend(text);
  };
  add(Kind::reasoning, piece.reasoning);
  add(Kind::text, piece.content);
  for (const ToolCallPiece& call : piece.calls) {
    if (kind_ != Kind::call || call_index_ != call.index) {
      events += next(Kind::call, &choice.calls[call.index]);
      call_index_ = call.index;
    }
    if (!call.arguments.empty()) events += extend(call.arguments);
  }
  return events;
}

std::string sent_event(std::string_view json) { return "data: " + std::string(json) + "\n\n"; }

std::string sent_event(std::string_view name, std::string_view json) {
  return "event: " + std::string(name) + "\n" + sent_event(json);
}

std::string time_text(std::int64_t seconds_since_1970) {
  const std::time_t time = seconds_since_1970;
  std::tm utc = {};
  gmtime_r(&time, &utc);
  std::array<char, 32> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

std::string random_id() {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::random_device device;
  std::string id;
  for (int i = 0; i < 24; ++i) id += kLetters[device() % kLetters.size()];
  return id;
}

std::int64_t characters_begun(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace leq
