#include "chat/conversation.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

std::string_view trim_left(std::string_view text) {
  while (const std::size_t length = utf8_length(text)) {
    if (!is_space(decode_utf8(text))) break;
    text.remove_prefix(length);
  }
  return text;
}

std::string_view trim_right(std::string_view text) {
  while (!text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 &&
           (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) {
      --at;
    }
    const std::string_view last = text.substr(at);
    if (utf8_length(last) != last.size() || !is_space(decode_utf8(last))) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::string_view trim_newlines_left(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view trim_newlines(std::string_view text) {
  text = trim_newlines_left(text);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

using Parts = std::vector<TextPart>;

void append(Parts& parts, std::string_view text, bool special) {
  if (text.empty()) return;
  if (parts.empty() || parts.back().special != special) parts.push_back({{}, special});
  parts.back().text += text;
}

// Trims white space at both ends of the concatenated parts.
void trim_parts(Parts& parts) {
  while (!parts.empty()) {
    parts.front().text = trim_left(parts.front().text);
    if (!parts.front().text.empty()) break;
    parts.erase(parts.begin());
  }
  while (!parts.empty()) {
    parts.back().text = trim_right(parts.back().text);
    if (!parts.back().text.empty()) break;
    parts.pop_back();
  }
}

class Writer {
 public:
  Writer(const ChatFormat& format, const ChatOptions& options)
      : format_(format), options_(options) {}

  // Appends text that belongs to the format itself.
  void mark(std::string_view text) {
    std::string filled = replace_all(std::string(text), "{bos}", options_.bos);
    filled = replace_all(std::move(filled), "{eos}", options_.eos);
    append(parts_, replace_all(std::move(filled), "{date}", options_.date), true);
  }

  void message(const MessageMarks& marks, Parts content) {
    if (marks.trim) trim_parts(content);
    mark(marks.before);
    for (const TextPart& part : content) append(parts_, part.text, part.special);
    mark(marks.after);
  }

  // Appends a user's message, preceded by the system prompt.
  void user(std::string_view content, const std::optional<std::string>& system) {
    Parts parts;
    if (system) {
      append(parts, format_.system.before, true);
      append(parts, *system, false);
      append(parts, format_.system.after, true);
    }
    append(parts, content, false);
    message(format_.user, std::move(parts));
  }

  Parts take() { return std::move(parts_); }

 private:
  const ChatFormat& format_;
  const ChatOptions& options_;
  Parts parts_;
};

struct Conversation {
  std::optional<std::string> system;  // set if it is not a message of its own
  std::vector<ChatMessage> messages;
};

[[noreturn]] void refuse(const ChatFormat& format, std::size_t index, const ChatMessage& message,
                         std::string_view expected) {
  fail("chat template ", format.name, ": message ", index + 1, " is of the role '",
       printable(message.role), "', expected ", expected);
}

bool own_messages(const ChatFormat& format) {
  return format.system_place == SystemPlace::own_message ||
         format.system_place == SystemPlace::first_always;
}

// Moves the system prompt from the messages to `conversation.system`.
void take_system(const ChatFormat& format, Conversation& conversation) {
  auto& messages = conversation.messages;
  if (format.order == RoleOrder::mistral_common) {
    for (const ChatMessage& message : messages) {
      if (message.role != "system") continue;
      conversation.system =
          conversation.system ? *conversation.system + "\n\n" + message.content : message.content;
    }
    std::erase_if(messages, [](const ChatMessage& m) { return m.role == "system"; });
  } else if (messages.front().role == "system") {
    require(
        format.system_place != SystemPlace::refused, "chat template ", format.name,
        ": it has no system prompt; say it in the first message, or choose another format with ",
        Setting{"chat_template"});
    conversation.system = messages.front().content;
    messages.erase(messages.begin());
  }
}

// Joins adjacent messages of one role, except system messages.
void merge_neighbours(std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> merged;
  for (ChatMessage& message : messages) {
    if (!merged.empty() && merged.back().role == message.role && message.role != "system") {
      merged.back().content += "\n\n" + message.content;
    } else {
      merged.push_back(std::move(message));
    }
  }
  messages = std::move(merged);
}

void check_mistral_common(const ChatFormat& format, const std::vector<ChatMessage>& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (i == 0 && message.role == "assistant") refuse(format, i, message, "user");
    if (i > 0 && message.role == "system" && messages[i - 1].role == "assistant") {
      refuse(format, i, message, "user after a reply");
    }
    require(message.role != "assistant" || !message.content.empty(), "chat template ", format.name,
            ": the reply in message ", i + 1, " is empty");
  }
}

void check_order(const ChatFormat& format, const std::vector<ChatMessage>& messages) {
  if (format.order == RoleOrder::mistral_common) return check_mistral_common(format, messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string_view turn = i % 2 == 0 ? "user" : "assistant";
    const bool is_system = messages[i].role == "system" && !own_messages(format);
    const bool wrong_role = format.order == RoleOrder::alternate && messages[i].role != turn;
    if (is_system || wrong_role) {
      refuse(format, i, messages[i],
             format.order == RoleOrder::alternate
                 ? "user, assistant, user, ... after the system prompt"
                 : "a system prompt in the first message only");
    }
  }
}

Conversation arrange(const ChatFormat& format, std::span<const ChatMessage> messages) {
  require(!messages.empty(), "chat template ", format.name, ": the conversation is empty");
  Conversation conversation;
  conversation.messages.assign(messages.begin(), messages.end());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      refuse(format, i, messages[i], "system, user or assistant");
    }
  }
  const std::string_view default_system = format.default_system;
  const bool has_system = messages.front().role == "system";
  const bool needs_system =
      format.system_place == SystemPlace::first_always || !default_system.empty();
  if (!own_messages(format)) {
    take_system(format, conversation);
    if (!conversation.system && !default_system.empty()) conversation.system = default_system;
    if (format.drops_empty_system && conversation.system == "") conversation.system.reset();
  } else if (!has_system && needs_system) {
    if (format.order == RoleOrder::mistral_common && messages.front().role == "assistant") {
      refuse(format, 0, messages.front(), "user or system");
    }
    conversation.messages.insert(conversation.messages.begin(),
                                 {"system", std::string(default_system)});
  }
  if (format.order == RoleOrder::mistral_common) merge_neighbours(conversation.messages);
  check_order(format, conversation.messages);
  return conversation;
}

// The index of the message that contains the system prompt; nullopt if none does.
std::optional<std::size_t> system_host(const ChatFormat& format, const Conversation& conversation) {
  const auto& messages = conversation.messages;
  if (!conversation.system || messages.empty()) return std::nullopt;
  if (format.system_place == SystemPlace::first_user) {
    if (messages.front().role != "user") refuse(format, 1, messages.front(), "user");
    return 0;
  }
  const auto is_user = [](const ChatMessage& m) { return m.role == "user"; };
  const auto last = std::find_if(messages.rbegin(), messages.rend(), is_user);
  if (last == messages.rend()) return std::nullopt;
  if (format.system_place == SystemPlace::last_message && last != messages.rbegin()) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(messages.rend() - last) - 1;
}

// The last message in which the user asks something; the last message if there is none.
std::size_t last_question(const std::vector<ChatMessage>& messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& text = messages[i].content;
    const bool tool_result =
        text.starts_with("<tool_response>") && text.ends_with("</tool_response>");
    if (messages[i].role == "user" && !tool_result) return i;
  }
  return messages.size() - 1;
}

// A thinking model's reply, split into reasoning and answer.
struct ThoughtReply {
  std::string_view thought;
  std::string_view reply;
};

ThoughtReply split_thought(std::string_view content) {
  constexpr std::string_view kOpen = "<think>";
  constexpr std::string_view kClose = "</think>";
  const std::size_t last = content.rfind(kClose);
  if (last == std::string_view::npos) return {{}, content};
  std::string_view thought = content.substr(0, content.find(kClose));
  const std::size_t open = thought.rfind(kOpen);
  if (open != std::string_view::npos) thought.remove_prefix(open + kOpen.size());
  return {trim_newlines(thought), trim_newlines_left(content.substr(last + kClose.size()))};
}

void write_reply(const ChatFormat& format, const Conversation& conversation, std::size_t index,
                 Writer& writer) {
  const auto& messages = conversation.messages;
  const std::string_view content = messages[index].content;
  Parts parts;
  if (format.thinking == Thinking::none) {
    append(parts, content, false);
  } else {
    const ThoughtReply split = split_thought(content);
    const bool kept = format.thinking == Thinking::kept_after_ask &&
                      index > last_question(messages) &&
                      (index + 1 == messages.size() || !split.thought.empty());
    if (kept) {
      append(parts, "<think>\n", true);
      append(parts, split.thought, false);
      append(parts, "\n</think>\n\n", true);
    }
    append(parts, kept ? trim_newlines_left(split.reply) : split.reply, false);
  }
  writer.message(format.assistant, std::move(parts));
}

}  // namespace

std::vector<TextPart> render_conversation(const ChatFormat& format,
                                          std::span<const ChatMessage> messages,
                                          const ChatOptions& options) {
  const Conversation conversation = arrange(format, messages);
  const auto host = system_host(format, conversation);
  Writer writer(format, options);
  writer.mark(format.start);
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& message = conversation.messages[i];
    if (message.role == "assistant") {
      write_reply(format, conversation, i, writer);
    } else if (message.role == "user") {
      writer.user(message.content, i == host ? conversation.system : std::nullopt);
    } else {
      const bool further = i > 0 && format.system_place == SystemPlace::first_always;
      Parts parts;
      append(parts, message.content, false);
      writer.message(further ? format.further_system : format.system, std::move(parts));
    }
  }
  if (options.ask_for_reply) {
    writer.mark(format.reply);
    if (format.thinking != Thinking::none && !options.enable_thinking) {
      writer.mark("<think>\n\n</think>\n\n");
    }
  }
  return writer.take();
}

}  // namespace leq
