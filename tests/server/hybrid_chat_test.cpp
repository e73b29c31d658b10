// Chats with hybrids and mixtures of experts, in every API: the next turn continues after the last
// reply; for models with recurrent layers, another chat continues after the system message.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "server/served_model.h"
#include "shared_data.h"

namespace leq::test {
namespace {

const std::string kSystem =
    "You tell tales about the bears and the foxes of the forest, one part at a time, and never "
    "forget what was said in the parts before.";

// One turn in an API: the request body for the conversation so far, and the answer's content.
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

class ChatsOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, ChatsOf, testing::Values("qwen35-tiny", "qwen3moe-tiny"));

TEST_P(ChatsOf, TheNextTurnFeedsWhatIsNewInEveryApi) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const Model model(quantized(folder, "int8"), {});
  const auto shared =
      std::ssize(model.tokenizer().encode("<|im_start|>system\n" + kSystem + "<|im_end|>\n", {}));
  int subject = 0;
  for (const auto& turn_of : {chat_turn, messages_turn, responses_turn}) {
    const ServedModel served(2, story_options(), model);
    Json messages = Json::array();
    Turn last;
    for (int i = 0; i < 3; ++i) {
      messages.push_back(message(
          "user", "Tell part " + std::to_string(i) + " of tale " + std::to_string(subject)));
      const Turn turn = turn_of(served, messages);
      // All tokens are cached except the reply's last one, which was drawn but not fed.
      EXPECT_EQ(turn.cached, i == 0 ? 0 : last.prompt + last.reply - 1) << subject << " " << i;
      EXPECT_GT(turn.prompt, last.prompt + last.reply);
      messages.push_back(message("assistant", turn.text));
      last = turn;
    }
    // Another chat reuses the system message; without recurrent layers, all common tokens.
    const Turn other = turn_of(served, Json::array({message("user", "Sing of the owl")}));
    if (model.config().delta_net() != nullptr) {
      EXPECT_EQ(other.cached, shared);
    } else {
      EXPECT_GE(other.cached, shared);
    }
    ++subject;
  }
}

// Four concurrent clients must get the answers of a single one; embedding requests, too.
TEST_P(ChatsOf, ClientsAtOnceGetWhatEachGetsAlone) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const Model model(quantized(folder, "int8"), {});
  const auto ask = [](const ServedModel& served, int i) {
    const std::string text = "Tale " + std::to_string(i) + " begins where the fox";
    const auto reply =
        served.post("/completion", {{"prompt", text}, {"n_predict", 16}, {"temperature", 0}});
    const auto vector = served.post("/v1/embeddings", Json{{"input", text}});
    EXPECT_EQ(vector.status, 200) << vector.body;
    EXPECT_EQ(std::ssize(vector.json["data"][0]["embedding"]), 128);
    return reply.json["content"].text() + vector.json["data"].dump();
  };
  std::vector<std::string> alone(4), together(4);
  {
    const ServedModel served(1, story_options(), model);
    for (int i = 0; i < 4; ++i) alone[i] = ask(served, i);
  }
  const ServedModel served(4, story_options(), model);
  std::vector<std::jthread> clients;
  for (int i = 0; i < 4; ++i) clients.emplace_back([&, i] { together[i] = ask(served, i); });
  clients.clear();
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace leq::test
