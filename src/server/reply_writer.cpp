#include "server/reply_writer.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "server/messages_writer.h"
#include "server/openai_writer.h"
#include "server/responses_writer.h"

namespace leq {
namespace {

constexpr double kMilliseconds = 1000;  // per second

std::int64_t seconds_since_1970() {
  using std::chrono::duration_cast, std::chrono::seconds, std::chrono::system_clock;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::unique_ptr<ReplyWriter> make_reply_writer(const GenerationCall& call, const ApiModel& model) {
  if (call.style == CallStyle::responses) {
    return std::make_unique<ResponsesWriter>(call, model, random_id(), seconds_since_1970());
  }
  if (call.style == CallStyle::messages) {
    return std::make_unique<MessagesWriter>(call, model, random_id());
  }
  return std::make_unique<OpenAiWriter>(call, model, random_id(), seconds_since_1970());
}

std::string sent_event(std::string_view json) { return "data: " + std::string(json) + "\n\n"; }

std::string sent_event(std::string_view name, std::string_view json) {
  return "event: " + std::string(name) + "\n" + sent_event(json);
}

std::string random_id() {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::random_device device;
  std::string id;
  for (int i = 0; i < 24; ++i) id += kLetters[device() % kLetters.size()];
  return id;
}

TokenCounts count_tokens(const GenerationCall& call, const std::vector<Choice>& choices) {
  TokenCounts counts;
  for (const auto& prompt : call.prompts) counts.prompt += std::ssize(prompt);
  for (const Choice& choice : choices) {
    counts.reply += std::ssize(choice.end.tokens);
    counts.reasoning += choice.reasoning_tokens;
    if (choice.index % call.choices == 0) counts.cached += choice.end.cached_tokens;
  }
  return counts;
}

Json warnings_json(const GenerationCall& call) {
  Json list = Json::array();
  for (const std::string& note : call.notes) list.push_back(note);
  return list;
}

std::int64_t characters_begun(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (c & 0xc0) != 0x80; });
}

Json timings_json(const EngineReply& reply) {
  return {{"cache_n", reply.cached_tokens},
          {"prompt_n", reply.fed_tokens},
          {"prompt_ms", kMilliseconds * (reply.prompt_seconds)},
          {"prompt_per_second", reply.prompt_tokens_per_second()},
          {"predicted_n", reply.tokens.size()},
          {"predicted_ms", kMilliseconds * (reply.reply_seconds)},
          {"predicted_per_second", reply.reply_tokens_per_second()}};
}

}  // namespace leq
