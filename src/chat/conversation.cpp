#include "chat/conversation.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::uint64_t kMaxFileBytes = 64ull << 20;
constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

// Checks only the form of each message; the template checks the order of roles.
std::vector<ChatMessage> messages_from_json(const Json& list, const std::string& source) {
  std::vector<ChatMessage> messages;
  for (const Json& entry : list) {
    const std::string place = source + ": message " + std::to_string(messages.size());
    ChatMessage message = {json_get<std::string>(entry, "role", place),
                           json_get<std::string>(entry, "content", place)};
    require(std::ranges::find(kRoles, message.role) != kRoles.end(), place,
            ": expected the role system, user or assistant, found '", printable(message.role), "'");
    require(message.role != "system" || messages.empty(), place,
            ": the system message must be the first");
    messages.push_back(std::move(message));
  }
  return messages;
}

// All but the sampling settings is left out where it is the default.
ChatSettings settings_from_json(const Json& json, const std::string& source) {
  constexpr std::int64_t kMost = 1ll << 40;
  const auto whole = [&](const char* key, std::int64_t least, std::int64_t fallback) {
    return json.contains(key) ? json_whole(json, key, least, kMost, source) : fallback;
  };
  ChatSettings settings = {.sampling = sampling_from_json(
                               json_member(json, "settings", Json::Type::object, source), source)};
  settings.max_tokens = whole("max_tokens", 0, settings.max_tokens);
  settings.context = whole("context", 1, settings.context);
  settings.thinking = json_get_or<bool>(json, "thinking", true, source);
  const auto format = json_get_or<std::string>(json, "format", "", source);
  require(format.empty() || format == "json", source, ": format: expected json, found '",
          printable(format), "'");
  settings.json = !format.empty();
  if (!json.contains("stop")) return settings;
  for (const Json& text : json_member(json, "stop", Json::Type::array, source)) {
    if (!text.is_string() || text.text().empty()) json_type_error(json, "stop", source);
    settings.stop.push_back(text.text());
  }
  return settings;
}

}  // namespace

void save_chat(const std::filesystem::path& path, const ChatFile& file) {
  Json messages = Json::array();
  for (const ChatMessage& m : file.chat.messages) {
    messages.push_back({{"role", m.role}, {"content", m.content}});
  }
  Json json = {{"leq_chat", kVersion},
               {"model", file.model},
               {"chat_template", file.format},
               {"replies", file.chat.replies},
               {"settings", sampling_to_json(file.settings.sampling)},
               {"messages", std::move(messages)}};
  const ChatSettings& settings = file.settings;
  if (settings.max_tokens >= 0) json["max_tokens"] = settings.max_tokens;
  if (!settings.stop.empty()) json["stop"] = settings.stop;
  if (!settings.thinking) json["thinking"] = false;
  if (settings.json) json["format"] = "json";
  if (settings.context > 0) json["context"] = settings.context;
  if (file.chat.left_out > 0) json["left_out"] = file.chat.left_out;
  const std::string text = json.dump_any(2) + "\n";
  AtomicFile out(path);
  out.append(std::as_bytes(std::span(text)));
  out.commit();
}

ChatFile load_chat(const std::filesystem::path& path) {
  const std::string source = path.string();
  const Json json = parse_json(read_file(path, kMaxFileBytes), source);
  require(json.is_object() && json.contains("leq_chat"), source,
          ": not a saved chat: expected an object with the key 'leq_chat', as /save writes it");
  const auto version = json_get<std::int64_t>(json, "leq_chat", source);
  require(version == kVersion, source, ": a chat of version ", version, ", expected ", kVersion);
  ChatFile file;
  file.model = json_get<std::string>(json, "model", source);
  file.format = json_get<std::string>(json, "chat_template", source);
  file.chat.replies =
      static_cast<std::uint32_t>(json_whole(json, "replies", 0, 0xffffffff, source));
  file.settings = settings_from_json(json, source);
  file.chat.messages =
      messages_from_json(json_member(json, "messages", Json::Type::array, source), source);
  if (!json.contains("left_out")) return file;
  const std::vector<ChatMessage>& messages = file.chat.messages;
  file.chat.left_out = static_cast<std::size_t>(
      json_whole(json, "left_out", 0, static_cast<std::int64_t>(messages.size()), source));
  const std::size_t kept = file.chat.left_out + (file.chat.has_system() ? 1 : 0);
  require(kept < messages.size() && messages[kept].role == "user", source,
          ": left_out: expected a number of messages before one of the user, found ",
          file.chat.left_out);
  return file;
}

}  // namespace leq
