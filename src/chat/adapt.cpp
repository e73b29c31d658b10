#include "chat/adapt.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

// A conversation of words that the template must show, each once at least.
struct Probe {
  bool TemplateTakes::*takes;
  std::string_view messages, tools;
  int words;  // "leqword1" to "leqword" + words
};

constexpr std::string_view kProbedTools =
    R"([{"type":"function","function":{"name":"leqword1","description":"leqword2","parameters":)"
    R"({"type":"object","properties":{"leqword3":{"type":"string","description":"d"}},)"
    R"("required":["leqword3"]}}}])";

// CALL in a probe: a call of the tool and its result.
constexpr std::string_view kProbedCall =
    R"({"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","type":"function",)"
    R"("function":{"name":"leqword1","arguments":{"leqword3":"leqword5"}}}]},)"
    R"({"role":"tool","tool_call_id":"abcdefghi","name":"leqword1","content":"leqword6"})";

constexpr std::array kProbes = {
    Probe{&TemplateTakes::system,
          R"([{"role":"system","content":"leqword1"},{"role":"user","content":"leqword2"}])", "[]",
          2},
    Probe{&TemplateTakes::systems,
          R"([{"role":"system","content":"leqword1"},{"role":"system","content":"leqword2"},
              {"role":"user","content":"leqword3"}])",
          "[]", 3},
    Probe{&TemplateTakes::systems,
          R"([{"role":"user","content":"leqword1"},{"role":"system","content":"leqword2"}])", "[]",
          2},
    Probe{&TemplateTakes::systems,
          R"([{"role":"user","content":"leqword1"},{"role":"assistant","content":"leqword2"},
              {"role":"system","content":"leqword3"},{"role":"user","content":"leqword4"}])",
          "[]", 4},
    Probe{&TemplateTakes::developer,
          R"([{"role":"developer","content":"leqword1"},{"role":"user","content":"leqword2"},
              {"role":"assistant","content":"leqword3"},
              {"role":"developer","content":"leqword4"},{"role":"user","content":"leqword5"}])",
          "[]", 5},
    Probe{&TemplateTakes::repeats,
          R"([{"role":"user","content":"leqword1"},{"role":"user","content":"leqword2"},
              {"role":"assistant","content":"leqword3"},{"role":"assistant","content":"leqword4"},
              {"role":"user","content":"leqword5"}])",
          "[]", 5},
    Probe{&TemplateTakes::tools, R"([{"role":"user","content":"leqword4"}])", kProbedTools, 4},
    Probe{&TemplateTakes::calls, R"([{"role":"user","content":"leqword4"},CALL])", kProbedTools, 6},
    Probe{&TemplateTakes::guided,
          R"([{"role":"system","content":"leqword7"},{"role":"user","content":"leqword4"},
              CALL])",
          kProbedTools, 7},
    Probe{&TemplateTakes::says,
          R"([{"role":"user","content":"leqword4"},
              {"role":"assistant","content":"leqword7","tool_calls":
              [{"id":"abcdefghi","type":"function","function":{"name":"leqword1","arguments":
              {"leqword3":"leqword5"}}}]},{"role":"tool","tool_call_id":"abcdefghi",
              "name":"leqword1","content":"leqword6"}])",
          kProbedTools, 7},
    Probe{&TemplateTakes::splits,
          R"([{"role":"user","content":"leqword4"},{"role":"assistant","content":"leqword7"},
              CALL,
              {"role":"assistant","content":"leqword8"},{"role":"user","content":"leqword9"}])",
          kProbedTools, 9},
    Probe{&TemplateTakes::asides,
          R"([{"role":"user","content":"leqword4"},CALL,{"role":"user","content":"leqword7"}])",
          kProbedTools, 7},
    Probe{&TemplateTakes::ids,
          R"([{"role":"user","content":"leqword4"},{"role":"assistant","content":"","tool_calls":
              [{"id":"toolu_01_AbCdEfGhIjKlMnOpQrSt","type":"function","function":
              {"name":"leqword1","arguments":{"leqword3":"leqword5"}}}]},{"role":"tool",
              "tool_call_id":"toolu_01_AbCdEfGhIjKlMnOpQrSt","name":"leqword1",
              "content":"leqword6"}])",
          kProbedTools, 6},
    Probe{&TemplateTakes::responses,
          R"([{"role":"user","content":"leqword4"},{"role":"assistant","content":"","tool_calls":
              [{"type":"function","function":{"name":"leqword1","arguments":
              {"leqword3":"leqword5"}}}],
              "tool_responses":[{"name":"leqword1","response":"leqword6"}]}])",
          kProbedTools, 6},
};

bool shows(const ChatTemplate& chat, const ChatOptions& options, const Probe& probe) {
  const Json messages = parse_json(replace_all(probe.messages, "CALL", kProbedCall), "a probe"),
             tools = parse_json(probe.tools, "a probe");
  try {
    const std::string text = joined(chat.render(
        ChatRequest{.messages = messages, .tools = tools.empty() ? JsonNode() : JsonNode(tools)},
        options));
    const bool has_tools = !tools.empty();
    for (int i = 1; i <= probe.words; ++i) {
      // A conversation with calls need not show what describes the tool.
      if (has_tools && probe.takes != &TemplateTakes::tools && i >= 2 && i <= 3) continue;
      if (text.find("leqword" + std::to_string(i)) == std::string::npos) return false;
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A call in each style: the text before its name, between name and arguments, and after these.
struct CallWords {
  std::string_view before, between, after;
};
constexpr CallWords kHermesWords = {"<tool_call>\n{\"name\": \"",
                                    "\", \"arguments\": ", "}\n</tool_call>"};
constexpr std::array<CallWords, 8> kCallWords = {
    kHermesWords,
    kHermesWords,
    kHermesWords,
    CallWords{"{\"name\": \"", "\", \"parameters\": ", "}"},
    CallWords{"[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": ", "}]"},
    CallWords{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
              "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    CallWords{"<|tool_call>call:", "", "<tool_call|>"},
    CallWords{"<|start|>assistant to=functions.", "<|channel|>commentary json<|message|>",
              "<|call|>"}};

std::string call_text(ToolCallStyle style, std::string_view name, std::string_view arguments) {
  const CallWords& words = kCallWords[static_cast<std::size_t>(style)];
  return std::string(words.before) + std::string(name) + std::string(words.between) +
         std::string(arguments) + std::string(words.after);
}

bool has_role(JsonNode message, std::string_view role) {
  const JsonNode found = message.find("role");
  return found.is_string() && found.text() == role;
}

std::string text_in(const Json& message) {
  std::vector<std::string> unread;
  return content_text(JsonNode(message).find("content"), "\n", unread);
}

void add_paragraph(std::string& text, std::string_view more) {
  if (!text.empty()) text += "\n\n";
  text += more;
}

void append_text(Json& message, std::string_view text) {
  std::string own = text_in(message);
  add_paragraph(own, text);
  message["content"] = std::move(own);
}

// The rules change `list_` one after another; each leaves a conversation that the next one reads.
class Adapter {
 public:
  Adapter(JsonNode messages, JsonNode tools, const TemplateTakes& takes, ToolCallStyle style)
      : messages_(messages), tools_(tools), takes_(takes), style_(style) {}

  AdaptedChat adapt() {
    read_parts();
    drop_no_calls();
    say_orphans();
    if (!takes_.developer && any([](JsonNode m) { return has_role(m, "developer"); })) {
      for (Json& message : list()) {
        if (has_role(message, "developer")) message["role"] = "system";
      }
    }
    if (!takes_.calls && any(is_of_tools)) say_calls();
    if (!takes_.tools && tools_.size() > 0) describe_tools();
    if (takes_.responses && any([](JsonNode m) { return has_role(m, "tool"); })) join_results();
    if (!takes_.says) split_calls();
    join_systems();
    if (!takes_.asides && any([](JsonNode m) { return has_role(m, "tool"); })) join_asides();
    if (!takes_.repeats) join_repeats();
    if (!takes_.ids && any(is_of_tools)) shorten_ids();
    return std::move(done_);
  }

 private:
  static bool is_of_tools(JsonNode message) {
    return has_role(message, "tool") || message.find("tool_calls").size() > 0;
  }
  template <class Is>
  bool any(const Is& is) const {
    for (const JsonNode message : done_.messages ? JsonNode(*done_.messages) : messages_) {
      if (is(message)) return true;
    }
    return false;
  }
  // The messages, copied when they are first changed.
  Json& list() {
    if (!done_.messages) done_.messages = messages_.value();
    return *done_.messages;
  }
  void note(std::string_view text) {
    done_.notes.push_back(Setting{"messages"}.marked() + ": " + std::string(text));
  }

  void read_parts() {
    std::size_t replied = 0;  // number of messages up to the last reply
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (has_role(messages_[i], "assistant")) replied = i + 1;
    }
    std::vector<std::string> types;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const JsonNode content = messages_[i].find("content");
      if (!content.is_array() && !content.is_object()) continue;
      const std::size_t known = types.size();
      std::string text = content_text(content, "\n", types);
      if (types.size() > known && i >= replied && has_role(messages_[i], "user")) {
        done_.unread = types.back();
      }
      list()[i]["content"] = std::move(text);
    }
    if (!types.empty()) note(unread_note(types));
  }

  // Many templates take an empty or absent list of calls, as clients send back, for a call.
  void drop_no_calls() {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const JsonNode calls = messages_[i].find("tool_calls");
      if (calls && calls.size() == 0) list()[i].erase("tool_calls");
    }
  }

  static void say_result(Json& message) {
    message = {{"role", "user"},
               {"content", "<tool_response>\n" + text_in(message) + "\n</tool_response>"}};
  }

  // Results without their calls, with which a conversation begins that was cut.
  void say_orphans() {
    std::set<std::string> ids;  // of calls; "": a call without one
    std::vector<std::size_t> orphans;
    for (std::size_t i = 0; i < size(); ++i) {
      const JsonNode message = at(i), answered = message.find("tool_call_id");
      for (const JsonNode call : message.find("tool_calls")) {
        const JsonNode id = call.find("id");
        ids.insert(id.is_string() ? id.text() : "");
      }
      const bool known =
          answered.is_string() ? ids.contains(answered.text()) || ids.contains("") : !ids.empty();
      if (has_role(message, "tool") && !known) orphans.push_back(i);
    }
    for (const std::size_t i : orphans) say_result(list()[i]);
    if (!orphans.empty()) note("a tool's result without its call is written as a text of the user");
  }

  void say_calls() {
    for (Json& message : list()) {
      if (has_role(message, "tool")) say_result(message);
      if (JsonNode(message).find("tool_calls").size() == 0) continue;
      std::string calls;
      for (const JsonNode call : JsonNode(message).find("tool_calls")) {
        const JsonNode function = call.find("function"), name = function.find("name"),
                       arguments = function.find("arguments");
        calls += (calls.empty() ? "" : "\n") +
                 call_text(style_, name.is_string() ? name.text() : "",
                           arguments.is_string() ? arguments.text() : arguments.dump());
      }
      append_text(message, calls);
      message.erase("tool_calls");
    }
    note("the chat template knows no calls of tools; they are written as texts");
  }

  // Results as members of the message with their calls.
  void join_results() {
    Json::Array kept;
    std::map<std::string, std::string> names;  // of the last message's calls by id; "": without one
    std::string last;                          // the name of the last of these calls
    const auto text = [](JsonNode node) { return node.is_string() ? node.text() : std::string(); };
    for (Json& message : list()) {
      if (!has_role(message, "tool") || names.empty()) {
        names.clear();
        for (const JsonNode call : JsonNode(message).find("tool_calls")) {
          last = names[text(call.find("id"))] = text(call.find("function").find("name"));
        }
        kept.push_back(std::move(message));
        continue;
      }
      const JsonNode of = JsonNode(message).find("tool_call_id");
      auto named = names.find(text(of));
      if (named == names.end()) named = names.find("");
      const std::string answered = named != names.end() ? named->second : "";
      Json response = {{"name", of.is_string() ? answered : last}, {"response", text_in(message)}};
      try {
        Json value = parse_json(response["response"].text(), "a result");
        if (value.is_object()) response["response"] = std::move(value);
      } catch (const Error&) {  // a plain text
      }
      Json& all = kept.back()["tool_responses"];
      if (all.is_null()) all = Json::array();
      all.push_back(std::move(response));
    }
    list() = Json(kept);
  }

  // Texts beside calls, which the template does not show, as messages before them.
  void split_calls() {
    const auto says = [](JsonNode m) {
      const JsonNode content = m.find("content");
      return m.find("tool_calls").size() > 0 && content.is_string() && !content.text().empty();
    };
    if (!any(says)) return;
    if (!takes_.splits) return note("the chat template shows no text of the model beside a call");
    Json::Array longer;
    for (Json& message : list()) {
      if (says(message)) {
        longer.push_back({{"role", "assistant"}, {"content", message["content"]}});
        message["content"] = "";
      }
      longer.push_back(std::move(message));
    }
    list() = Json(longer);
  }

  void describe_tools() {
    std::string text = "# Tools\n\nThese functions can be called. Each line describes one:\n";
    for (const JsonNode tool : tools_) text += tool.dump() + "\n";
    text += "\nA call is written exactly so:\n" + call_text(style_, "NAME", "{\"KEY\": VALUE}");
    if (list().empty() || !has_role(list()[0], "system")) insert_first("system");
    append_text(list()[0], text);
    done_.tools = Json::array();
    note("the chat template shows no tools; the system message describes them");
  }

  void insert_first(std::string_view role) {
    Json::Array longer = {Json({{"role", role}, {"content", ""}})};
    for (Json& message : list()) longer.push_back(std::move(message));
    list() = Json(longer);
  }

  // System messages that the template does not take where they are: to the first one, or to the
  // first message of the user.
  void join_systems() {
    bool any_late = false;
    for (std::size_t i = 1; i < size(); ++i) any_late = any_late || is_system(i);
    const bool takes = takes_.system && (takes_.guided || !any(is_of_tools));
    const bool late = !takes_.systems && any_late, first = !takes && is_system(0);
    if (!late && !first) return;
    std::string text;
    Json::Array rest;
    for (Json& message : list()) {
      if (has_role(message, "system") || has_role(message, "developer")) {
        add_paragraph(text, text_in(message));
      } else {
        rest.push_back(std::move(message));
      }
    }
    list() = Json(rest);
    if (takes) {
      insert_first("system");
      list()[0]["content"] = text;
      return note("the chat template takes one system message; all are joined to the first");
    }
    if (list().empty() || !has_role(list()[0], "user")) insert_first("user");
    const std::string own = text_in(list()[0]);
    list()[0]["content"] = text + (own.empty() ? "" : "\n\n") + own;
    note(
        "the chat template takes no system message here; it is joined to the first one of the "
        "user");
  }

  std::size_t size() const { return done_.messages ? done_.messages->size() : messages_.size(); }
  JsonNode at(std::size_t i) const {
    return (done_.messages ? JsonNode(*done_.messages) : messages_)[i];
  }
  bool is_system(std::size_t i) const {
    return has_role(at(i), "system") || has_role(at(i), "developer");
  }

  // Joins each message to the one before it if `joins` says so.
  template <class Joins>
  void join_if(const Joins& joins) {
    Json::Array kept;
    std::optional<std::string> text;  // of the last message and those that are joined to it
    const auto set_text = [&] {
      if (text) kept.back()["content"] = *std::exchange(text, std::nullopt);
    };
    for (Json& message : list()) {
      if (kept.empty() || !joins(kept.back(), message)) {
        set_text();
        kept.push_back(std::move(message));
        continue;
      }
      if (!text) text = text_in(kept.back());
      add_paragraph(*text, text_in(message));
      if (message.contains("tool_calls")) kept.back()["tool_calls"] = message["tool_calls"];
    }
    set_text();
    list() = Json(kept);
  }

  void join_asides() {
    join_if([](JsonNode before, JsonNode message) {
      return has_role(before, "tool") && has_role(message, "user");
    });
  }
  void join_repeats() {
    const auto joins = [](JsonNode before, JsonNode message) {
      return (has_role(before, "user") && has_role(message, "user")) ||
             (has_role(before, "assistant") && has_role(message, "assistant") &&
              before.find("tool_calls").size() == 0);
    };
    const JsonNode all = done_.messages ? JsonNode(*done_.messages) : messages_;
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (joins(all[i - 1], all[i])) return join_if(joins);
    }
  }

  // Nine letters and digits that depend on the id alone, so that calls and results still agree.
  static std::string short_id(const std::string& id) {
    constexpr std::string_view kLetters =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    constexpr std::size_t kLength = 9;
    if (id.size() == kLength && id.find_first_not_of(kLetters) == std::string::npos) return id;
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    std::string made;
    for (std::size_t i = 0; i < kLength; ++i, hash /= kLetters.size()) {
      made += kLetters[hash % kLetters.size()];
    }
    return made;
  }
  void shorten_ids() {
    const auto shorten = [](Json& object, std::string_view name) {
      const Json* id = object.find_given(name);
      if (id != nullptr && id->is_string()) object[name] = short_id(id->text());
    };
    for (Json& message : list()) {
      shorten(message, "tool_call_id");
      if (Json* calls = message.find("tool_calls"); message.contains("tool_calls")) {
        for (Json& call : *calls) shorten(call, "id");
      }
    }
  }

  JsonNode messages_, tools_;
  const TemplateTakes& takes_;
  ToolCallStyle style_;
  AdaptedChat done_;
};

// The text of a part that is not one: words from its members, in brackets, and the texts in it.
std::string described(JsonNode part, const std::string& type, std::vector<std::string>& unread) {
  constexpr std::array<std::string_view, 10> kWords = {"title",  "name",  "tool_name", "filename",
                                                       "query",  "url",   "source",    "code",
                                                       "stdout", "stderr"};
  std::string words, inside;
  for (const std::string_view name : kWords) {
    const JsonNode member = part.find(name);
    if (!member.is_string() || member.text().empty() || member.text().starts_with("data:"))
      continue;
    words += (words.empty() ? "" : ", ") + member.text();
  }
  for (const char* name : {"input", "action"}) {
    const JsonNode input = part.find(name);
    if (input.is_object()) words += (words.empty() ? "" : " ") + input.dump();
  }
  for (const char* name : {"content", "output", "results"}) {
    const std::string text = content_text(part.find(name), "\n", unread);
    inside += (inside.empty() || text.empty() ? "" : "\n") + text;
  }
  if (words.empty() && inside.empty()) {
    unread.push_back(type);
    words = "this model reads texts only";
  }
  return "[" + type + (words.empty() ? "" : ": " + words) + "]" + (inside.empty() ? "" : "\n") +
         inside;
}

std::string part_text(JsonNode part, std::vector<std::string>& unread) {
  if (part.is_string()) return part.text();
  for (const char* name : {"text", "refusal", "thinking"}) {
    if (const JsonNode text = part.find(name); text.is_string()) return text.text();
  }
  const JsonNode type = part.find("type"), source = part.find("source"), kind = source.find("type"),
                 data = source.find("data");
  if (kind.is_string() && kind.text() == "text" && data.is_string()) return data.text();
  return described(part, type.is_string() ? printable(type.text()) : "part", unread);
}

}  // namespace

TemplateTakes takes_of(const ChatTemplate& chat, const ChatOptions& options, ToolCallStyle style) {
  TemplateTakes takes;
  for (const Probe& probe : kProbes) {
    if (takes.*probe.takes) takes.*probe.takes = shows(chat, options, probe);
  }
  if (style == ToolCallStyle::none) takes.tools = takes.calls = false;
  if (!takes.calls) {  // no such messages are left
    takes.guided = takes.says = takes.asides = takes.ids = true;
    takes.responses = false;
  }
  return takes;
}

std::string unread_note(const std::vector<std::string>& types) {
  return "the model reads texts only; a description replaces parts of the type " + types.front();
}

std::string content_text(JsonNode content, std::string_view separator,
                         std::vector<std::string>& unread) {
  if (!content || content.is_null()) return "";
  if (content.is_string()) return content.text();
  if (content.is_object() && content.find("type").is_string()) return part_text(content, unread);
  if (!content.is_array()) return content.dump();
  std::string text;
  for (const JsonNode part : content) {
    text += (text.empty() ? "" : std::string(separator)) + part_text(part, unread);
  }
  return text;
}

AdaptedChat adapt_chat(JsonNode messages, JsonNode tools, const TemplateTakes& takes,
                       ToolCallStyle style) {
  return Adapter(messages, tools, takes, style).adapt();
}

}  // namespace leq
