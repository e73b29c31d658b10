#include "generate/chat_file.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "generate/settings.h"

namespace leq {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::uint64_t kMaxFileBytes = 64ull << 20;
constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

// The shortest decimal that reads back as the same f32: 0.8, not 0.800000011920929.
double shortest(float value) { return *parse_double(number_text(value)); }

Json sampling_to_json(const SamplingSettings& s) {
  Json json = {{"seed", s.seed}, {"penalties_when_greedy", s.penalties_when_greedy}};
  for (const SamplingKnob& knob : kSamplingKnobs) {
    Json& entry = json[std::string(knob_key(knob))];
    const double value = knob_value(s, knob);
    if (knob.is_whole()) {
      entry = static_cast<std::int64_t>(value);
    } else {
      entry = shortest(static_cast<float>(value));
    }
  }
  Json& biases = json["logit_bias"] = Json::array();
  for (const LogitBias& bias : s.logit_bias) biases.push_back(logit_bias_text(bias));
  json["dry_sequence_breakers"] = s.dry_breakers;
  return json;
}

std::int64_t whole_number(const Json& object, const char* key, std::int64_t low, std::int64_t high,
                          const std::string& source) {
  const auto value = json_get<std::int64_t>(object, key, source);
  require(value >= low && value <= high, source, ": '", key, "' is ", value,
          ", expected a number from ", low, " to ", high);
  return value;
}

const Json& member(const Json& object, const char* key, Json::Type type,
                   const std::string& source) {
  const auto found = object.find(key);
  if (found == object.end() || found->type() != type) json_type_error(object, key, source);
  return *found;
}

// `fallback` where there is no such list, in a chat of an earlier version.
std::vector<std::string> texts_or(const Json& object, const char* key,
                                  std::vector<std::string> fallback, const std::string& source) {
  if (!object.contains(key)) return fallback;
  std::vector<std::string> texts;
  for (const Json& text : member(object, key, Json::Type::array, source)) {
    if (!text.is_string()) json_type_error(object, key, source);
    texts.push_back(text.text());
  }
  return texts;
}

SamplingSettings sampling_from_json(const Json& json, const std::string& source) {
  SamplingSettings s;
  s.seed = member(json, "seed", Json::Type::number_unsigned, source).get<std::uint64_t>();
  s.penalties_when_greedy = json_get<bool>(json, "penalties_when_greedy", source);
  for (const SamplingKnob& knob : kSamplingKnobs) {
    const std::string key(knob_key(knob));
    if (knob.is_later && !json.contains(key)) continue;
    const double value = knob.is_whole()
                             ? static_cast<double>(whole_number(
                                   json, key.c_str(), static_cast<std::int64_t>(knob.least),
                                   static_cast<std::int64_t>(knob.most), source))
                             : json_get<double>(json, key.c_str(), source);
    try {
      set_knob(s, knob, value);
    } catch (const Error& error) {
      fail(error.kind(), source, ": settings: ", error.marked());
    }
  }
  const std::vector<std::string> biases = texts_or(json, "logit_bias", {}, source);
  s.dry_breakers = texts_or(json, "dry_sequence_breakers", s.dry_breakers, source);
  try {
    for (const std::string& bias : biases) s.logit_bias.push_back(parse_logit_bias(bias));
    check_settings(s);
  } catch (const Error& error) {
    fail(error.kind(), source, ": settings: ", error.marked());
  }
  return s;
}

// The order of roles is the template's business; here every message must be one.
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

}  // namespace

void save_chat(const std::filesystem::path& path, const ChatFile& file) {
  Json messages = Json::array();
  for (const ChatMessage& m : file.chat.messages) {
    messages.push_back({{"role", m.role}, {"content", m.content}});
  }
  const Json json = {{"leq_chat", kVersion},
                     {"model", file.model},
                     {"chat_template", file.format},
                     {"replies", file.chat.replies},
                     {"settings", sampling_to_json(file.sampling)},
                     {"messages", std::move(messages)}};
  const std::string text = json.dump(2) + "\n";
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
      static_cast<std::uint32_t>(whole_number(json, "replies", 0, 0xffffffff, source));
  file.sampling = sampling_from_json(member(json, "settings", Json::Type::object, source), source);
  file.chat.messages =
      messages_from_json(member(json, "messages", Json::Type::array, source), source);
  return file;
}

}  // namespace leq
