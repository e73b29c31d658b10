// Requests and replies of Ollama's /api/chat and /api/generate.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/json_repair.h"
#include "base/text.h"
#include "server/dialects.h"

namespace leq {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;

// Sets what chats and completions share: sampling, limits, format, thinking, streaming.
void read_settings(JsonNode body, ForeignChat& chat) {
  const JsonNode options = object_field(body, "options");
  copy_sampling(options, chat.body);
  if (const JsonNode stop = given_field(options, "stop")) chat.body["stop"] = stop.value();
  // -1: no limit; -2: as much as the context has room for.
  const auto limit = whole_field(options, "num_predict", -2, 1 << 30);
  if (limit) chat.body["max_tokens"] = std::max<std::int64_t>(*limit, -1);
  if (given_field(options, "num_ctx")) {
    chat.note("options: num_ctx is ignored; the context is the server's");
  }
  chat.names.insert(chat.names.end(), {{"options.num_predict", "max_tokens"},
                                       {"format", "response_format"},
                                       {"think", "reasoning_effort"}});
  if (const JsonNode format = given_field(body, "format")) {
    if (format.is_object()) {
      chat.body["response_format"] = {
          {"type", "json_schema"},
          {"json_schema", {{"name", "format"}, {"schema", format.value()}}}};
    } else if (format.is_string() && format.text() == "json") {
      chat.body["response_format"] = Json::object({{"type", "json_object"}});
    } else if (!format.is_string() || !format.text().empty()) {
      field_error("format", "\"json\" or a JSON schema", format);
    }
  }
  if (const JsonNode think = given_field(body, "think")) {
    if (think.is_boolean()) {
      chat.body["chat_template_kwargs"] = Json::object({{"enable_thinking", think.boolean()}});
    } else {
      chat.body["reasoning_effort"] = think.value();
    }
  }
  note_logprobs(body, chat);
  const JsonNode stream = given_field(body, "stream");
  chat.body["stream"] = !stream || flag_field(body, "stream");
}

// Messages are those of a chat, except that calls need no ids and their arguments are objects:
// results answer calls by id, or by name and order.
class MessageReader {
 public:
  MessageReader(JsonNode body, ForeignChat& chat) : chat_(chat) {
    const JsonNode messages = given_field(body, "messages");
    if (!messages || !messages.is_array()) field_error("messages", "a list of messages", messages);
    for (const JsonNode message : messages) {
      if (!message.is_object()) field_error("messages", "objects", message);
      read(message);
    }
    chat_.body["messages"] = std::move(messages_);
    if (const JsonNode tools = given_field(body, "tools")) chat_.body["tools"] = tools.value();
  }

 private:
  void read(JsonNode message) {
    const std::string role = text_field(message, "role").value_or("user");
    Json read = {{"role", role}, {"content", text_field(message, "content").value_or("")}};
    if (const JsonNode images = given_field(message, "images"); images && images.size() > 0) {
      chat_.note("messages: images are left out: the model reads texts");
    }
    if (const auto thinking = text_field(message, "thinking"))
      read["reasoning_content"] = *thinking;
    const JsonNode calls = given_field(message, "tool_calls");
    if (calls && calls.size() > 0) read["tool_calls"] = calls_of(calls);
    if (role == "tool") {
      read["tool_call_id"] = answered(text_field(message, "tool_call_id").value_or(""),
                                      text_field(message, "tool_name").value_or(""));
    }
    messages_.push_back(std::move(read));
  }

  Json calls_of(JsonNode calls) {
    open_.clear();
    of_name_.clear();
    of_id_.clear();
    Json list = Json::array();
    for (const JsonNode call : calls) {
      const JsonNode function = object_field(call, "function");
      const std::string name = text_field(function, "name").value_or("");
      open_[++count_] = name;
      of_name_.emplace(name, count_);
      if (const auto id = text_field(call, "id"); id && !id->empty()) of_id_[*id] = count_;
      const JsonNode arguments = given_field(function, "arguments");
      list.push_back(
          {{"id", id_of(count_)},
           {"type", "function"},
           {"function", {{"name", name}, {"arguments", arguments ? arguments.dump() : "{}"}}}});
    }
    return list;
  }

  // Nine letters and digits, which every template accepts.
  static std::string id_of(std::size_t number) {
    const std::string digits = std::to_string(number);
    return "c" + std::string(8 - std::min<std::size_t>(8, digits.size()), '0') + digits;
  }

  // The id of the call without an answer that has this id in the request, else of the first that
  // has this name, else of the first of any name; that of number 0 if there is none.
  std::string answered(const std::string& id, const std::string& name) {
    if (open_.empty()) return id_of(0);
    const auto named = of_name_.lower_bound({name, 0});
    const bool is_named = named != of_name_.end() && named->first == name;
    std::size_t number = is_named ? named->second : open_.begin()->first;
    const auto same = of_id_.find(id);
    if (same != of_id_.end() && open_.contains(same->second)) number = same->second;
    of_name_.erase({open_[number], number});
    open_.erase(number);
    return id_of(number);
  }

  ForeignChat& chat_;
  Json messages_ = Json::array();
  std::size_t count_ = 0;
  // The calls without an answer: names by number, and all of both.
  std::map<std::size_t, std::string> open_;
  std::set<std::pair<std::string, std::size_t>> of_name_;
  std::map<std::string, std::size_t> of_id_;
};

// A JSON object for each piece, in lines; the last has the counts and times.
class OllamaWriter : public ReplyWriter {
 public:
  using ReplyWriter::ReplyWriter;

  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string begin(const std::vector<Choice>&) override { return ""; }
  std::string ping() const override { return ""; }
  // A call is sent when it is complete, because its arguments are an object.
  std::string more(const Choice&, const ChoicePiece& piece) override {
    if (piece.content.empty() && piece.reasoning.empty()) return "";
    return line(message_json(piece.content, piece.reasoning, Json::array()), false);
  }
  std::string end(const Choice& choice) override {
    return choice.calls.empty() ? "" : line(message_json("", "", calls_json(choice)), false);
  }
  std::string finish(const std::vector<Choice>& choices) override {
    return line(with_counts(message_json("", "", Json::array()), choices), true);
  }
  std::string failed(const Error& error) override {
    return Json::object({{"error", error.what()}}).dump_any() + "\n";
  }
  std::string whole(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    Json reply =
        with_counts(message_json(choice.content, choice.reasoning, calls_json(choice)), choices);
    reply["done"] = true;
    return reply.dump_any();
  }

 private:
  static Json calls_json(const Choice& choice) {
    Json calls = Json::array();
    for (const Choice::Call& call : choice.calls) {
      calls.push_back(Json::object(
          {{"function", {{"name", call.name}, {"arguments", repaired_object(call.arguments)}}}}));
    }
    return calls;
  }

  Json message_json(const std::string& content, const std::string& thinking, Json calls) const {
    Json reply = {{"model", model_.name}, {"created_at", time_text(created_)}};
    if (call_.style != CallStyle::ollama_chat) {
      reply["response"] = content;
      if (!thinking.empty()) reply["thinking"] = thinking;
      return reply;
    }
    Json message = {{"role", "assistant"}, {"content", content}};
    if (!thinking.empty()) message["thinking"] = thinking;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    reply["message"] = std::move(message);
    return reply;
  }

  Json with_counts(Json reply, const std::vector<Choice>& choices) const {
    const Choice& choice = choices.front();
    const TokenCounts counts = count_tokens(choices);
    const auto nanoseconds = [](double seconds) {
      return static_cast<std::int64_t>(seconds * static_cast<double>(kNanoseconds));
    };
    reply["done_reason"] = choice.is_complete() ? "stop" : "length";
    reply["total_duration"] = nanoseconds(choice.end.prompt_seconds + choice.end.reply_seconds);
    reply["load_duration"] = 0;
    reply["prompt_eval_count"] = counts.prompt;
    reply["prompt_eval_duration"] = nanoseconds(choice.end.prompt_seconds);
    reply["eval_count"] = counts.reply;
    reply["eval_duration"] = nanoseconds(choice.end.reply_seconds);
    add_warnings(reply);
    return reply;
  }

  static std::string line(Json reply, bool done) {
    reply["done"] = done;
    return reply.dump_any() + "\n";
  }
};

}  // namespace

ForeignChat chat_of_ollama_chat(JsonNode body) {
  ForeignChat chat = {.body = Json::object(), .notes = {}};
  MessageReader(body, chat);
  read_settings(body, chat);
  return chat;
}

ForeignChat chat_of_ollama_generate(JsonNode body) {
  ForeignChat chat = {.body = Json::object(), .notes = {}};
  const std::string prompt = text_field(body, "prompt").value_or("");
  for (const std::string_view name : {"suffix", "template", "context"}) {
    if (const JsonNode given = given_field(body, name);
        given && !(given.is_string() && given.text().empty()) &&
        !(given.is_array() && given.size() == 0)) {
      field_error(name, "is not supported; send a conversation to /api/chat");
    }
  }
  if (flag_field(body, "raw")) {
    chat.body["prompt"] = prompt;
  } else {
    Json messages = Json::array();
    const std::string system = text_field(body, "system").value_or("");
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
    messages.push_back({{"role", "user"}, {"content", prompt}});
    chat.names.push_back({"prompt", "messages"});
    if (given_field(body, "images").size() > 0) {
      chat.note("images: are left out: the model reads texts");
    }
    chat.body["messages"] = std::move(messages);
  }
  read_settings(body, chat);
  return chat;
}

std::unique_ptr<ReplyWriter> ollama_writer(const GenerationCall& call, const ApiModel& model) {
  return std::make_unique<OllamaWriter>(call, model);
}

}  // namespace leq
