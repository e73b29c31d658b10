#include "server/dialects.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <random>
#include <set>
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

// A custom tool, whose input is any text, as a function with one argument.
Json function_of_custom(JsonNode tool, std::string_view shown) {
  static const Json kInput = parse_json(
      R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],)"
      R"("additionalProperties":false})",
      "the input of a custom tool");
  std::string description = text_field(tool, "description").value_or("");
  JsonNode format = object_field(tool, "format");
  if (const JsonNode nested = object_field(format, "grammar")) format = nested;
  if (const auto grammar = text_field(format, "definition")) {
    description += "\nThe input is of this grammar (" + text_field(format, "syntax").value_or("") +
                   "):\n" + *grammar;
  }
  return {{"type", "function"},
          {"function",
           {{"name", shown}, {"description", std::move(description)}, {"parameters", kInput}}}};
}

bool is_custom(JsonNode tool) {
  const JsonNode type = tool.find("type");
  return type.is_string() && type.text() == "custom" && tool.find("custom").is_object();
}

}  // namespace

void ForeignChat::note(std::string text) {
  constexpr std::size_t kMaxNotes = 32;
  if (notes.size() < kMaxNotes && std::ranges::find(notes, text) == notes.end()) {
    notes.push_back(std::move(text));
  }
}

std::string ForeignChat::in_its_names(std::string text) const {
  for (const CopiedMember& member : names) {
    text = replace_all(text, marked_field(member.as), marked_field(member.name));
  }
  return text;
}

ForeignChat chat_of_chat(JsonNode body) {
  ForeignChat chat;
  const JsonNode given = body.find("tools");
  bool any = false;
  for (const JsonNode tool : given.is_array() ? given : JsonNode()) any = any || is_custom(tool);
  if (!any) return chat;
  chat.body = body.value();
  for (Json& tool : chat.body["tools"]) {
    if (!is_custom(tool)) continue;
    const Json custom = tool["custom"];
    const std::string name = text_field(custom, "name").value_or("");
    tool = function_of_custom(custom, name);
    chat.aliases.push_back({.shown = name, .name = name, .custom = true});
  }
  const auto rename = [](Json& object, auto&& members) {
    if (!is_custom(object)) return;
    const JsonNode custom = object["custom"];
    Json function = members(custom);
    object["type"] = "function";
    object["function"] = std::move(function);
    object.erase("custom");
  };
  const auto name_in = [](JsonNode custom) { return text_field(custom, "name").value_or(""); };
  if (body.find("tool_choice").is_object()) {
    rename(chat.body["tool_choice"], [&](JsonNode custom) {
      return Json::object({{"name", name_in(custom)}});
    });
  }
  for (Json& message : chat.body["messages"]) {
    if (!JsonNode(message).find("tool_calls").is_array()) continue;
    for (Json& call : message["tool_calls"]) {
      rename(call, [&](JsonNode custom) {
        const Json input = {{"input", text_field(custom, "input").value_or("")}};
        return Json{{"name", name_in(custom)}, {"arguments", input.dump_any()}};
      });
    }
  }
  return chat;
}

ForeignChat foreign_chat(CallStyle style, JsonNode body) {
  if (style == CallStyle::chat) return chat_of_chat(body);
  if (style == CallStyle::responses) return chat_of_responses(body);
  if (style == CallStyle::messages) return chat_of_messages(body);
  if (style == CallStyle::ollama_chat) return chat_of_ollama_chat(body);
  if (style == CallStyle::ollama_generate) return chat_of_ollama_generate(body);
  return {};
}

void note_logprobs(JsonNode body, ForeignChat& chat) {
  for (const std::string_view name : {"logprobs", "top_logprobs"}) {
    const JsonNode found = given_field(body, name);
    const bool is_off =
        (found.is_boolean() && !found.boolean()) || (found.is_number() && found.number() == 0);
    if (found && !is_off) chat.note(std::string(name) + ": is ignored by this API");
  }
}

ChatBuilder::ChatBuilder(JsonNode body) : body_(body) {
  require(body.is_object(), ErrorKind::bad_input, "the request body: expected a JSON object");
  refuse_members(body);
  (void)whole_field(body, "n", 1, 1);
  note_logprobs(body, chat_);
  copy_sampling(body, chat_.body);
}

void ChatBuilder::set_given(const CopiedMember& member, JsonNode value) {
  if (!value || value.is_null()) return;
  chat_.body[member.as] = value.value();
  chat_.names.push_back(member);
}

void ChatBuilder::copy_members(std::span<const CopiedMember> members) {
  for (const CopiedMember& member : members) set_given(member, given_field(body_, member.name));
}

void ChatBuilder::add_tool(const ToolRules& rules, JsonNode tool, const std::string& space,
                           Json& list) {
  if (!tool.is_object()) field_error("tools", "objects", tool);
  const std::string type = text_field(tool, "type").value_or(std::string(rules.fallback)),
                    name = text_field(tool, "name").value_or(""), shown = shown_name(space, name);
  const bool is_function = type == rules.function, is_input = !is_function && type == "custom";
  if (type == "namespace" && space.empty()) {
    for (const JsonNode inner : given_field(tool, "tools")) add_tool(rules, inner, name, list);
  } else if (is_function || is_input) {
    if (name.empty()) field_error("tools", "a name in each tool", tool);
    list.push_back(is_input ? function_of_custom(tool, shown) : function_of(tool, rules.members));
    if (!is_input && !space.empty()) list[list.size() - 1]["function"]["name"] = shown;
    if (is_input || !space.empty()) chat_.aliases.push_back({shown, name, space, is_input});
    check_tool_count("tools", list.size());
  } else {
    chat_.note("tools: " + printable(name.empty() ? type : name) + " is left out: only " +
               std::string(rules.supported) + " are supported, not " + printable(type));
  }
}

bool ChatBuilder::read_tools(const ToolRules& rules) {
  const JsonNode tools = given_field(body_, "tools");
  if (tools && !tools.is_array()) field_error("tools", "an array", tools);
  Json list = Json::array();
  for (const JsonNode tool : tools) add_tool(rules, tool, "", list);
  chat_.names.insert(chat_.names.end(), rules.members.begin(), rules.members.end());
  const bool any = !list.empty();
  if (any) chat_.body["tools"] = std::move(list);
  return any;
}

void ChatBuilder::choose_function(JsonNode choice) {
  static constexpr std::array kName = {CopiedMember{"name", "name"}};
  chat_.body["tool_choice"] = function_of(choice, kName);
}

void ChatBuilder::choose_allowed(JsonNode choice) {
  // A tool that was left out cannot be called anyway; a namespace allows all of its tools.
  std::set<std::string> names, spaces;
  for (const JsonNode one : given_field(choice, "tools")) {
    const std::string name = text_field(one, "name").value_or("");
    names.insert(shown_name(text_field(one, "namespace").value_or(""), name));
    if (!name.empty()) spaces.insert(name);
  }
  Json tools = Json::array();
  for (const JsonNode tool : JsonNode(chat_.body).find("tools")) {
    const std::string& shown = tool.find("function").find("name").text();
    const auto alias = std::ranges::find(chat_.aliases, shown, &ToolAlias::shown);
    if (names.contains(shown) || (alias != chat_.aliases.end() && spaces.contains(alias->space))) {
      tools.push_back({{"type", "function"}, {"function", Json::object({{"name", shown}})}});
    }
  }
  chat_.body["tool_choice"] = {
      {"type", "allowed_tools"},
      {"allowed_tools",
       {{"mode", text_field(choice, "mode").value_or("auto")}, {"tools", std::move(tools)}}}};
}

std::string ChatBuilder::read_text(JsonNode content, std::string_view member,
                                   std::string_view separator, bool must_read) {
  std::vector<std::string> unread;
  std::string text = content_text(content, separator, unread);
  if (unread.empty()) return text;
  if (must_read) {
    field_error(member, "a part of the type " + unread.front() +
                            " is not supported: the model reads texts");
  }
  chat_.note(std::string(member) + ": " + unread_note(unread));
  return text;
}

std::string shown_name(std::string_view space, std::string_view name) {
  const bool joined = space.empty() || space.ends_with("__");
  return std::string(space) + (joined ? "" : "__") + std::string(name);
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
  const auto add = [&](Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (kind_ != kind) events += next(kind, nullptr);
    events += extend(std::string(text));
  };
  add(Kind::reasoning, piece.reasoning);
  std::size_t said = 0;  // bytes of the content
  const auto say_up_to = [&](std::size_t end) {
    add(Kind::text, std::string_view(piece.content).substr(said, end - said));
    said = end;
  };
  for (const ToolCallPiece& call : piece.calls) {
    say_up_to(call.after);
    if (kind_ != Kind::call || call_index_ != call.index) {
      events += next(Kind::call, &choice.calls[call.index]);
      call_index_ = call.index;
    }
    if (!call.arguments.empty()) events += extend(call.arguments);
  }
  say_up_to(piece.content.size());
  return events;
}

void add_warning_header(HttpReply& reply, const std::vector<std::string>& notes) {
  constexpr std::size_t kMaxBytes = 1000;
  std::string text, line;
  for (const std::string& note : notes) text += (text.empty() ? "" : "; ") + note;
  for (const char c : text.substr(0, kMaxBytes)) line += c >= ' ' && c < 0x7f ? c : '?';
  if (!notes.empty()) reply.headers.emplace_back("X-Leq-Warnings", line);
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
