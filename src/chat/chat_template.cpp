#include "chat/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "chat/chat_format.h"
#include "chat/conversation.h"
#include "chat/jinja/template.h"

namespace leq {
namespace {

const ChatFormat* find_format(std::string_view name) {
  for (const ChatFormat& format : chat_formats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

std::string all_names() {
  std::vector<std::string> names;
  for (const ChatFormat& format : chat_formats()) names.emplace_back(format.name);
  return join(names);
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

// A date such as "26 Jul 2024", in English regardless of the locale.
std::string date_text(const std::tm& day) {
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::string number = std::to_string(day.tm_mday);
  return (number.size() == 1 ? "0" : "") + number + " " +
         std::string(kMonths[static_cast<std::size_t>(day.tm_mon)]) + " " +
         std::to_string(day.tm_year + 1900);
}

Json tree_of(std::span<const ChatMessage> messages) {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"content", message.content}, {"role", message.role}});
  }
  return parse_json(list.dump_any(), "the conversation");
}

// Returns the messages if a named format can write them; throws Error for tools and the like.
std::vector<ChatMessage> plain_messages(JsonNode messages, std::string_view format) {
  std::vector<ChatMessage> plain;
  for (const JsonNode message : messages) {
    const JsonNode role = message.find("role"), content = message.find("content");
    const std::string place =
        "chat template " + std::string(format) + ": message " + std::to_string(plain.size());
    require(role.is_string(), place, ": expected a role");
    require(!message.find("tool_calls") && role.text() != "tool", place,
            ": tools are not supported by this format; use the model's own template");
    std::string text;
    if (content.is_array()) {
      for (const JsonNode part : content) {
        const JsonNode words = part.find("text");
        require(words.is_string(), place, ": a part that is no text");
        text += (text.empty() ? "" : "\n") + words.text();
      }
    } else if (content && !content.is_null()) {
      require(content.is_string(), place, ": expected content that is text");
      text = content.text();
    }
    plain.push_back({role.text(), std::move(text)});
  }
  return plain;
}

bool has_calls(JsonNode messages) {
  for (const JsonNode message : messages) {
    if (message.find("tool_calls").size() > 0) return true;
  }
  return false;
}

bool has_no_content(JsonNode messages) {
  for (const JsonNode message : messages) {
    const JsonNode content = message.find("content");
    if (!content || content.is_null()) return true;
  }
  return false;
}

// Some templates concatenate a content, or the arguments of earlier calls, with text. If plain
// rendering fails, variants with strings are tried. If all fail, the first error is reported.
std::vector<TextPart> render_adapted(const JinjaTemplate& jinja, JinjaInput input) {
  std::vector<JinjaInput> variants = {input};
  if (has_calls(input.messages)) {
    variants.push_back(input);
    variants.back().arguments = ToolArguments::texts;
  }
  if (has_no_content(input.messages)) {
    for (std::size_t i = 0, count = variants.size(); i < count; ++i) {
      variants.push_back(variants[i]);
      variants.back().null_is_empty = true;
    }
  }
  std::optional<Error> first;
  for (const JinjaInput& variant : variants) {
    try {
      return jinja.render(variant);
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  throw *first;
}

// The special token that the template writes after a past reply; nullopt if it writes none.
std::optional<Token> token_after_reply(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  constexpr std::string_view kReply = "leq";
  const std::vector<ChatMessage> probe = {{"user", "?"}, {"assistant", std::string(kReply)}};
  ChatOptions options = chat_options(tokenizer);
  options.ask_for_reply = false;
  std::vector<TextPart> parts;
  try {
    parts = chat.render(probe, options);
  } catch (const Error&) {
    return std::nullopt;
  }
  const auto reply = std::find_if(parts.rbegin(), parts.rend(), [&](const TextPart& part) {
    return !part.special && part.text == kReply;
  });
  if (reply == parts.rend() || reply == parts.rbegin()) return std::nullopt;
  for (const Token id : tokenizer.encode(std::prev(reply)->text, {})) {
    if (tokenizer.type(id) == TokenType::control) return id;
  }
  return std::nullopt;
}

}  // namespace

ChatOptions chat_options(const Tokenizer& tokenizer) {
  const auto text_of = [&](Token id) {
    return id == kNoToken ? std::string() : tokenizer.decode(std::span(&id, 1), true);
  };
  ChatOptions options;
  options.bos = text_of(tokenizer.bos());
  options.eos = text_of(tokenizer.eos());
  return options;
}

ChatTemplate ChatTemplate::of_model(std::string_view jinja, std::string_view source) {
  ChatTemplate chat;
  chat.jinja_ = std::make_shared<const JinjaTemplate>(jinja, source);
  return chat;
}

ChatTemplate ChatTemplate::by_name(std::string_view name) {
  const ChatFormat* format = find_format(name);
  require(format != nullptr, Setting{"chat_template"}, ": there is no format '", printable(name),
          "', expected one of: ", all_names());
  ChatTemplate chat;
  chat.format_ = format;
  return chat;
}

std::vector<std::string_view> ChatTemplate::names() {
  std::vector<std::string_view> names;
  for (const ChatFormat& format : chat_formats()) names.push_back(format.name);
  return names;
}

std::string_view ChatTemplate::name() const {
  return format_ != nullptr ? format_->name : "the model's own";
}

std::vector<TextPart> ChatTemplate::render(std::span<const ChatMessage> messages,
                                           const ChatOptions& options) const {
  if (format_ == nullptr) {
    const Json tree = tree_of(messages);
    return render(ChatRequest{.messages = tree}, options);
  }
  ChatOptions filled = options;
  if (filled.date.empty()) filled.date = format_->default_date;
  if (filled.date.empty()) filled.date = date_text(options.now.value_or(local_time()));
  return render_conversation(*format_, messages, filled);
}

std::vector<TextPart> ChatTemplate::render(const ChatRequest& request,
                                           const ChatOptions& options) const {
  require(request.messages.size() > 0, "the conversation is empty");
  if (format_ != nullptr) {
    require(request.tools.size() == 0, "chat template ", format_->name,
            ": tools are not supported by this format; use the model's own template");
    return render(plain_messages(request.messages, format_->name), options);
  }
  JinjaInput input = {.messages = request.messages,
                      .tools = request.tools,
                      .variables = request.variables,
                      .bos = options.bos,
                      .eos = options.eos,
                      .date = options.date,
                      .add_generation_prompt = options.ask_for_reply,
                      .enable_thinking = options.enable_thinking,
                      .now = options.now.value_or(local_time()),
                      .thought_blocks = jinja_->reads_thought_blocks()};
  return render_adapted(*jinja_, input);
}

void ChatTemplate::add_stops(const Tokenizer& tokenizer, StopRules& rules) const {
  if (format_ == nullptr) {
    const auto id = token_after_reply(*this, tokenizer);
    if (id && !rules.is_end_token(*id)) rules.end_tokens.push_back(*id);
  } else if (format_->end == "{eos}") {
    if (tokenizer.eos() != kNoToken) rules.end_tokens.push_back(tokenizer.eos());
  } else if (const auto id = tokenizer.special_id(format_->end)) {
    rules.end_tokens.push_back(*id);
  } else {
    rules.strings.emplace_back(format_->end);
  }
}

bool reopen_last_message(std::vector<TextPart>& parts, JsonNode messages) {
  JsonNode content = messages.last().find("content");
  if (content.is_array()) content = content.last().find("text");
  const auto written = std::find_if(parts.rbegin(), parts.rend(),
                                    [](const TextPart& part) { return !part.special; });
  if (!content.is_string() || written == parts.rend()) return false;
  // Templates may trim the content and remove reasoning in front of it.
  const std::string_view wanted = trim(content.text()), found = trim(written->text);
  const bool is_it = found.ends_with(wanted) || wanted.ends_with(found);
  if (wanted.empty() || found.empty() || !is_it) return false;
  parts.erase(written.base(), parts.end());
  return true;
}

std::string joined(std::span<const TextPart> parts) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

}  // namespace leq
