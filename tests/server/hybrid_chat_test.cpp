// Chats with a model that has recurrent layers: the next turn continues from the state that the
// last reply left, in every API.
#include <gtest/gtest.h>

#include <string>

#include "server/served_model.h"
#include "shared_data.h"

namespace leq::test {
namespace {

const std::string kSystem =
    "You tell tales about the bears and the foxes of the forest, one part at a time, and never "
    "forget what was said in the parts before.";

// One turn of an API: its body from the conversation so far, and what its answer says.
struct Turn {
  std::int64_t prompt = 0, cached = 0, reply = 0;
  std::string text;
};

Json message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

std::int64_t number(const Json& json) { return json.get<std::int64_t>(); }

Turn chat_turn(const ServedModel& served, const Json& messages) {
  Json all = Json::array({message("system", kSystem)});
  for (const Json& one : messages) all.push_back(one);
  const auto answer = served.post("/v1/chat/completions",
                                  Json{{"messages", all}, {"max_tokens", 20}, {"temperature", 0}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  const Json& usage = answer.json["usage"];
  return {number(usage["prompt_tokens"]), number(usage["prompt_tokens_details"]["cached_tokens"]),
          number(usage["completion_tokens"]),
          answer.json["choices"][0]["message"]["content"].text()};
}

Turn messages_turn(const ServedModel& served, const Json& messages) {
  const auto answer = served.post(
      "/v1/messages",
      Json{{"system", kSystem}, {"messages", messages}, {"max_tokens", 20}, {"temperature", 0}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  const Json& usage = answer.json["usage"];
  const std::int64_t fed = number(usage["input_tokens"]);
  const std::int64_t cached = number(usage["cache_read_input_tokens"]);
  return {fed + cached, cached, number(usage["output_tokens"]),
          answer.json["content"][0]["text"].text()};
}

Turn responses_turn(const ServedModel& served, const Json& messages) {
  const auto answer = served.post("/v1/responses", Json{{"instructions", kSystem},
                                                        {"input", messages},
                                                        {"max_output_tokens", 20},
                                                        {"temperature", 0}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  const Json& usage = answer.json["usage"];
  return {number(usage["input_tokens"]), number(usage["input_tokens_details"]["cached_tokens"]),
          number(usage["output_tokens"]), answer.json["output"][0]["content"][0]["text"].text()};
}

TEST(HybridChat, ANextTurnFeedsWhatIsNewInEveryApi) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen35-tiny");
  const Model model(quantized(folder, "int8"), {});
  int subject = 0;
  for (const auto& turn_of : {chat_turn, messages_turn, responses_turn}) {
    const ServedModel served(2, story_options(), model);
    Json messages = Json::array();
    Turn last;
    for (int i = 0; i < 3; ++i) {
      messages.push_back(message(
          "user", "Tell part " + std::to_string(i) + " of tale " + std::to_string(subject)));
      const Turn turn = turn_of(served, messages);
      // All that was there but the reply's last token, whose keys no step needed.
      EXPECT_EQ(turn.cached, i == 0 ? 0 : last.prompt + last.reply - 1) << subject << " " << i;
      EXPECT_GT(turn.prompt, last.prompt + last.reply);
      messages.push_back(message("assistant", turn.text));
      last = turn;
    }
    ++subject;
  }
}

}  // namespace
}  // namespace leq::test
