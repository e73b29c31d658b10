// Requests and replies of /v1/responses, OpenAI's second API.
#include <array>
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "server/dialects.h"

namespace leq {
namespace {

constexpr std::array kKept = {
    CopiedMember{"stop", "stop"},
    CopiedMember{"stream", "stream"},
    CopiedMember{"max_output_tokens", "max_tokens"},
    CopiedMember{"parallel_tool_calls", "parallel_tool_calls"},
    CopiedMember{"chat_template_kwargs", "chat_template_kwargs"},
    CopiedMember{"thinking_budget_tokens", "thinking_budget_tokens"},
    CopiedMember{"response_format", "response_format"},
    CopiedMember{"json_schema", "json_schema"},
    CopiedMember{"grammar", "grammar"},
    CopiedMember{"continue_final_message", "continue_final_message"},
    CopiedMember{"add_generation_prompt", "add_generation_prompt"},
};
constexpr std::array kKeptOfFunction = {
    CopiedMember{"name", "name"},
    CopiedMember{"description", "description"},
    CopiedMember{"parameters", "parameters"},
    CopiedMember{"strict", "strict"},
};
// Members that need what this server does not keep.
struct Stateful {
  std::string_view name, reason;
};
constexpr std::string_view kNoConversation =
    "nothing is kept between requests; send the whole conversation as input";
constexpr std::array kStateful = {
    Stateful{"previous_response_id", kNoConversation}, Stateful{"conversation", kNoConversation},
    Stateful{"prompt", "the server stores no prompts; send its text as instructions or input"},
    Stateful{"background", "a response is sent when it is complete, or streamed"}};

std::string type_of(JsonNode item, std::string_view fallback) {
  return text_field(item, "type").value_or(std::string(fallback));
}

// Whether the item is one that the model has written.
bool is_reply(JsonNode item) {
  const JsonNode role = item.find("role"), type = item.find("type");
  return (role.is_string() && role.text() == "assistant") ||
         (type.is_string() && type.text().ends_with("_call"));
}

class ResponsesReader : public ChatBuilder {
 public:
  using ChatBuilder::ChatBuilder;

  ForeignChat read() {
    for (const auto& [name, reason] : kStateful) {
      const JsonNode found = given_field(body_, name);
      if (found && !(found.is_boolean() && !found.boolean())) {
        field_error(name, "is not supported: " + std::string(reason));
      }
    }
    (void)whole_field(body_, "max_output_tokens", 1, kMaxTokensRequested);
    const JsonNode metadata = object_field(body_, "metadata");
    for (const JsonNode one : metadata) {
      if (!one.is_string()) field_error("metadata", "an object of strings", metadata);
    }
    chat_.names.push_back({"input", "messages"});
    read_input();
    read_choice(given_field(body_, "tool_choice"), read_tools({.function = "function",
                                                               .fallback = "",
                                                               .supported = "functions",
                                                               .members = kKeptOfFunction}));
    copy_members(kKept);
    read_format();
    note_ignored();
    const JsonNode reasoning = object_field(body_, "reasoning");
    set_given({"reasoning.effort", "reasoning_effort"}, given_field(reasoning, "effort"));
    return std::move(chat_);
  }

 private:
  void read_input() {
    if (const auto text = text_field(body_, "instructions")) system(*text);
    const JsonNode input = given_field(body_, "input");
    if (!input || (!input.is_string() && !input.is_array())) {
      field_error("input", "a text or a list of items", input);
    }
    if (input.is_string()) user(input.text());
    std::size_t replied = 0;  // number of items up to the last one of the model
    for (std::size_t i = 0; i < input.size(); ++i) {
      if (is_reply(input[i])) replied = i + 1;
    }
    for (std::size_t i = 0; i < input.size(); ++i) {
      if (!input[i].is_object()) field_error("input", "objects as items", input[i]);
      read_item(input[i], type_of(input[i], "message"), i >= replied);
    }
    if (empty()) field_error("input", "at least one item", input);
    finish_messages();
  }

  void read_item(JsonNode item, const std::string& type, bool must_read) {
    if (type == "message") return read_message(item, must_read);
    if (type == "function_call" || type == "custom_tool_call") {
      const bool custom = type == "custom_tool_call";
      const std::string input = text_field(item, custom ? "input" : "arguments").value_or("");
      const std::string space = text_field(item, "namespace").value_or("");
      return call(needed(item, "call_id"), shown_name(space, needed(item, "name")),
                  custom ? Json::object({{"input", input}}).dump_any() : input);
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return tool_result(needed(item, "call_id"), text_of(item.find("output"), false));
    }
    if (type == "reasoning") {
      const std::string whole = text_of(given_field(item, "content"), false);
      const std::string summary = text_of(given_field(item, "summary"), false);
      return reasoning(whole.empty() ? summary : whole);
    }
    if (type == "item_reference") {
      field_error("input", "item_reference is not supported: nothing is kept between requests");
    }
    // Another call, or the result of one, that a server has run.
    assistant(text_of(item, false));
  }

  std::string text_of(JsonNode content, bool must_read) {
    return read_text(content, "input", "", must_read);
  }

  void read_message(JsonNode item, bool must_read) {
    const std::string role = text_field(item, "role").value_or("user");
    const std::string text = text_of(item.find("content"), must_read && role == "user");
    if (role == "assistant") return assistant(text);
    if (role == "user") return user(text);
    if (role == "system" || role == "developer") return system(text);
    field_error("input", "the roles user, assistant, system and developer", item.find("role"));
  }

  static std::string needed(JsonNode item, std::string_view name) {
    const auto found = text_field(item, name);
    if (!found) field_error("input", std::string(name) + " in an item", item);
    return *found;
  }

  void read_choice(JsonNode choice, bool any_tool) {
    if (!choice) return;
    if (choice.is_string()) {
      if (any_tool || choice.text() != "auto") chat_.body["tool_choice"] = choice.value();
      return;
    }
    const std::string type = choice.is_object() ? type_of(choice, "") : "";
    if (type == "allowed_tools") {
      choose_allowed(choice);
    } else if (type == "function" || type == "custom") {
      choose_function(choice);
    } else {
      field_error("tool_choice", "none, auto, required, a function or allowed_tools", choice);
    }
  }

  // Members that change nothing here, unlike in OpenAI's service.
  void note_ignored() {
    const JsonNode truncation = given_field(body_, "truncation");
    if (truncation.is_string() && truncation.text() == "auto") {
      chat_.note("truncation: a conversation is never cut, but refused if it is too long");
    }
    for (const JsonNode one : given_field(body_, "include")) {
      if (!one.is_string() || !one.text().ends_with("logprobs")) continue;
      chat_.note("include: " + printable(one.text()) + " is not written by this API");
    }
  }

  void read_format() {
    const JsonNode format = object_field(object_field(body_, "text"), "format");
    if (!format) return;
    chat_.names.push_back({"text.format", "response_format"});
    if (type_of(format, "text") == "json_schema") {
      chat_.body["response_format"] = {{"type", "json_schema"}, {"json_schema", format.value()}};
    } else {
      chat_.body["response_format"] = format.value();
    }
  }
};

// The request's member unchanged, or `fallback` if it is absent.
Json echoed(JsonNode asked, std::string_view name, Json fallback) {
  const JsonNode found = asked.find(name);
  return found && !found.is_null() ? found.value() : std::move(fallback);
}

// Items (reasoning, a text, calls) and their stream events.
class ResponsesWriter : public ItemWriter {
 public:
  using ItemWriter::ItemWriter;

  std::string begin(const std::vector<Choice>&) override {
    std::string events = event("response.created", {{"response", response_json("in_progress")}});
    return events + event("response.in_progress", {{"response", response_json("in_progress")}});
  }
  // A truncated item gets the status "incomplete".
  std::string end(const Choice& choice) override { return close(choice.is_complete()); }
  std::string finish(const std::vector<Choice>& choices) override {
    const std::string status = set_end(choices);
    return event("response." + status, {{"response", response_json(status)}});
  }
  std::string failed(const Error& error) override {
    std::string events = close(false);
    error_ = {{"code", "server_error"}, {"message", error.what()}};
    return events + event("response.failed", {{"response", response_json("failed")}});
  }
  std::string whole(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    ChoicePiece all;
    all.reasoning = choice.reasoning;
    all.content = choice.content;
    for (std::size_t i = 0; i < choice.calls.size(); ++i) {
      all.calls.push_back({.index = i,
                           .name = choice.calls[i].name,
                           .arguments = choice.calls[i].arguments,
                           .after = choice.calls[i].after});
    }
    (void)more(choice, all);
    (void)end(choice);
    return response_json(set_end(choices)).dump_any();
  }

 private:
  // The current item.
  struct Item {
    std::string id, text;  // text: includes the arguments of a call
    Choice::Call call;
  };

  std::string event(const std::string& type, Json members) {
    members["type"] = type;
    members["sequence_number"] = events_++;
    return sent_event(type, members.dump_any());
  }

  // An event for the current item and its only part.
  std::string item_event(const std::string& type, Json members, bool with_part) {
    members["item_id"] = item_.id;
    members["output_index"] = output_.size();
    if (with_part) members["content_index"] = 0;
    return event(type, std::move(members));
  }

  std::string open(const Choice::Call* call) override {
    item_.id = (kind_ == Kind::reasoning ? "rs_"
                : kind_ == Kind::text    ? "msg_"
                : call->is_custom()      ? "ctc_"
                                         : "fc_") +
               random_id();
    if (call != nullptr) item_.call = *call;
    Json begun = item_json(true);
    begun["status"] = "in_progress";
    if (kind_ != Kind::call) begun["content"] = Json::array();
    std::string events = event("response.output_item.added",
                               {{"output_index", output_.size()}, {"item", std::move(begun)}});
    if (kind_ == Kind::call) return events;
    return events + item_event("response.content_part.added", {{"part", part_json("")}}, true);
  }

  std::string extend(const std::string& text) override {
    item_.text += text;
    Json members = {{"delta", text}};
    if (kind_ == Kind::call) {
      return item_event(call_type() + ".delta", std::move(members), false);
    }
    if (kind_ == Kind::text) members["logprobs"] = Json::array();
    return item_event(part_type() + ".delta", std::move(members), true);
  }

  std::string close(bool is_whole) override {
    if (kind_ == Kind::none) return "";
    std::string events;
    if (kind_ == Kind::call) {
      Json done = item_.call.is_custom()
                      ? Json::object({{"input", item_.text}})
                      : Json{{"arguments", item_.text}, {"name", item_.call.client_name()}};
      events = item_event(call_type() + ".done", std::move(done), false);
    } else {
      Json done = {{"text", item_.text}};
      if (kind_ == Kind::text) done["logprobs"] = Json::array();
      events = item_event(part_type() + ".done", std::move(done), true);
      events += item_event("response.content_part.done", {{"part", part_json(item_.text)}}, true);
    }
    Json item = item_json(is_whole);
    events +=
        event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    item_ = {};
    kind_ = Kind::none;
    return events;
  }

  Json item_json(bool is_whole) const {
    const char* status = is_whole ? "completed" : "incomplete";
    if (kind_ == Kind::call) {
      const Choice::Call& call = item_.call;
      Json item = {{"type", call.is_custom() ? "custom_tool_call" : "function_call"},
                   {"id", item_.id},
                   {"call_id", call.id},
                   {"name", call.client_name()},
                   {call.is_custom() ? "input" : "arguments", item_.text},
                   {"status", status}};
      if (call.alias != nullptr && !call.alias->space.empty())
        item["namespace"] = call.alias->space;
      return item;
    }
    Json content = Json::array({part_json(item_.text)});
    if (kind_ == Kind::reasoning) {
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

  Json part_json(const std::string& text) const {
    if (kind_ == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }

  Json response_json(const std::string& status) const {
    const JsonNode asked = call_.asked;
    Json text = echoed(asked, "text", Json::object());
    if (!text.is_object() || !text.contains("format")) {
      text = {{"format", Json::object({{"type", "text"}})}};
    }
    Json json = {
        {"id", "resp_" + id_},
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
        {"temperature",
         parameter_json(call_.sampling, kSamplingParameters[parameter_index("temperature")])},
        {"text", std::move(text)},
        {"tool_choice", echoed(asked, "tool_choice", "auto")},
        {"tools", echoed(asked, "tools", Json::array())},
        {"top_p", parameter_json(call_.sampling, kSamplingParameters[parameter_index("top_p")])},
        {"truncation", "disabled"},
        {"usage", usage_}};
    add_warnings(json);
    return json;
  }

  // Returns the status of the response.
  std::string set_end(const std::vector<Choice>& choices) {
    const TokenCounts counts = count_tokens(choices);
    usage_ = {{"input_tokens", counts.prompt},
              {"input_tokens_details", {{"cached_tokens", counts.cached}}},
              {"output_tokens", counts.reply},
              {"output_tokens_details", {{"reasoning_tokens", counts.reasoning}}},
              {"total_tokens", counts.prompt + counts.reply}};
    const Choice& choice = choices.front();
    if (choice.is_complete()) return "completed";
    incomplete_ = Json::object({{"reason", "max_output_tokens"}});
    return "incomplete";
  }

  // The prefix of the event types of a part.
  std::string part_type() const {
    return kind_ == Kind::reasoning ? "response.reasoning_text" : "response.output_text";
  }

  std::string call_type() const {
    return item_.call.is_custom() ? "response.custom_tool_call_input"
                                  : "response.function_call_arguments";
  }

  std::int64_t events_ = 0;
  Item item_;
  Json output_ = Json::array();  // completed items
  Json usage_, incomplete_, error_;
};

}  // namespace

ForeignChat chat_of_responses(JsonNode body) { return ResponsesReader(body).read(); }

std::unique_ptr<ReplyWriter> responses_writer(const GenerationCall& call, const ApiModel& model) {
  return std::make_unique<ResponsesWriter>(call, model);
}

}  // namespace leq
