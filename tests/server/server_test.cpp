// Tests the server as its clients use it, over loopback. Its replies are compared with those of the
// engine for single requests, and probabilities with softmax sums computed by the test.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/stopwatch.h"
#include "engine/generator.h"
#include "runtime/engine_thread.h"
#include "server/raw_client.h"
#include "server/request.h"
#include "server/served_model.h"

namespace leq::test {
namespace {

const Json kQuestion =
    Json::array({Json::object({{"role", "user"}, {"content", "Tell a story."}})});

Json chat_body(std::uint64_t seed, int tokens) {
  return {{"messages", kQuestion}, {"seed", seed}, {"max_tokens", tokens}, {"temperature", 1.0}};
}

// Generates one reply at a time in a session of its own.
class Alone {
 public:
  Alone() : backend_(make_backend({.device = "cpu"})) {
    session_.emplace(story_model(), *backend_, story_limits(1));
    engine_.emplace(*session_, story_model().tokenizer(), EngineOptions{.speculate = false});
  }
  EngineReply write(const std::vector<Token>& prompt, const SamplingSettings& sampling,
                    const StopRules& stop, std::uint32_t choice = 0) {
    EngineRequest request;
    EngineReply ended;
    request.prompt = prompt;
    request.sampling = sampling;
    request.stop = stop;
    request.choice = choice;
    request.on_end = [&](const EngineReply& reply) { ended = reply; };
    engine_->submit(std::move(request));
    while (engine_->step()) {
    }
    return ended;
  }
  std::vector<float> logits(std::span<const Token> tokens) {
    engine_.reset();
    session_->cache().clear(0);
    const auto row = session_->feed(0, tokens);
    return {row.begin(), row.end()};
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::optional<Session> session_;
  std::optional<Engine> engine_;
};

std::vector<Token> question_tokens() {
  const Model& model = story_model();
  const ChatTemplate format = ChatTemplate::of_model(model.chat_template(), "the model");
  const ChatMessage messages[] = {{"user", "Tell a story."}};
  return model.tokenizer().encode_parts(format.render(messages, chat_options(model.tokenizer())));
}

StopRules stop_rules(std::int64_t tokens) {
  StopRules stop;
  stop.end_tokens = story_model().end_tokens();
  stop.max_tokens = tokens;
  return stop;
}

SamplingSettings sampling_of(std::uint64_t seed) {
  SamplingSettings sampling = story_sampling();
  sampling.temperature = 1;
  sampling.seed = seed;
  return sampling;
}

TEST(Server, WritesWhatTheEngineWrites) {
  const ServedModel served;
  Alone alone;
  for (const std::uint64_t seed : {1u, 2u, 77u}) {
    const auto answer = served.post("/v1/chat/completions", chat_body(seed, 40));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const EngineReply expected = alone.write(question_tokens(), sampling_of(seed), stop_rules(40));
    const Json& choice = answer.json["choices"][0];
    EXPECT_EQ(choice["message"]["content"].text(), expected.text);
    EXPECT_EQ(choice["message"]["role"].text(), "assistant");
    EXPECT_EQ(choice["finish_reason"].text(),
              expected.stopped == StopReason::token_limit ? "length" : "stop");
    EXPECT_EQ(answer.json["usage"]["completion_tokens"].get<std::size_t>(), expected.tokens.size());
    EXPECT_EQ(answer.json["usage"]["prompt_tokens"].get<std::size_t>(), question_tokens().size());
    EXPECT_EQ(answer.json["object"].text(), "chat.completion");
  }
}

TEST(Server, StreamsWhatItWritesInOnePiece) {
  const ServedModel served;
  Json body = chat_body(5, 60);
  const auto whole = served.post("/v1/chat/completions", body);
  body["stream"] = true;
  body["stream_options"] = Json::object({{"include_usage", true}});
  const auto streamed = served.post("/v1/chat/completions", body);
  ASSERT_EQ(streamed.status, 200) << streamed.body;
  bool done = false;
  const std::vector<Json> events = events_of(streamed.body, &done);
  EXPECT_TRUE(done) << streamed.body;
  ASSERT_GT(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"].text(), "assistant");
  std::string text, reason;
  for (const Json& event : events) {
    EXPECT_EQ(event["object"].text(), "chat.completion.chunk");
    if (event["choices"].empty()) continue;
    const Json& choice = event["choices"][0];
    text += choice["delta"].value("content", "");
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"].text();
  }
  EXPECT_EQ(text, whole.json["choices"][0]["message"]["content"].text());
  EXPECT_EQ(reason, whole.json["choices"][0]["finish_reason"].text());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], whole.json["usage"]["completion_tokens"]);
}

// Whatever other requests are in the batch, the reply must be the same as for a single request.
TEST(Server, WritesTheSameAloneAndAmongThirtyTwo) {
  ServerOptions options = story_options();
  options.most_waiting = 32;
  const ServedModel served(8, options);
  std::vector<std::string> alone(32), together(32);
  const auto ask = [&](std::size_t i) {
    const Json body = {
        {"prompt", i % 4 == 0 ? "Once upon a time" : "The little cat " + std::string(i, 'a')},
        {"seed", i},
        {"max_tokens", 20 + i},
        {"temperature", i % 3 == 0 ? 0.0 : 0.9}};
    const auto answer = served.post("/v1/completions", body);
    return answer.status == 200 ? answer.json["choices"][0]["text"].text() : answer.body;
  };
  for (std::size_t i = 0; i < alone.size(); ++i) alone[i] = ask(i);
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < together.size(); ++i) {
    clients.emplace_back([&, i] { together[i] = ask(i); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
}

TEST(Server, WritesSeveralChoices) {
  const ServedModel served;
  Alone alone;
  Json body = chat_body(3, 30);
  body["n"] = 3;
  const auto answer = served.post("/v1/chat/completions", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_EQ(answer.json["choices"].size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const EngineReply expected = alone.write(question_tokens(), sampling_of(3), stop_rules(30), i);
    EXPECT_EQ(answer.json["choices"][i]["message"]["content"].text(), expected.text) << i;
    EXPECT_EQ(answer.json["choices"][i]["index"].get<std::uint32_t>(), i);
  }
}

TEST(Server, TellsHowProbableTokensWere) {
  const ServedModel served;
  Json body = chat_body(9, 8);
  body["logprobs"] = true;
  body["top_logprobs"] = 5;
  const auto answer = served.post("/v1/chat/completions", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& list = answer.json["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(list.size(), 8u);
  const Tokenizer& tokenizer = story_model().tokenizer();
  std::vector<Token> tokens = question_tokens();
  Alone alone;
  const EngineReply reply = alone.write(tokens, sampling_of(9), stop_rules(8));
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::vector<float> logits = alone.logits(tokens);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    std::vector<std::pair<double, std::string>> best;
    for (std::size_t id = 0; id < logits.size(); ++id) {
      best.emplace_back(-std::log(std::exp(double{logits[id]}) / sum),
                        tokenizer.token_bytes(static_cast<Token>(id)));
    }
    const Token drawn = reply.tokens[i];
    EXPECT_NEAR(list[i]["logprob"].get<double>(), -best[static_cast<std::size_t>(drawn)].first,
                1e-4);
    EXPECT_EQ(list[i]["token"].text(), tokenizer.token_bytes(drawn));
    std::sort(best.begin(), best.end());
    ASSERT_EQ(list[i]["top_logprobs"].size(), 5u);
    for (std::size_t k = 0; k < 5; ++k) {
      EXPECT_NEAR(list[i]["top_logprobs"][k]["logprob"].get<double>(), -best[k].first, 1e-4);
    }
    text += list[i]["token"].text();
    tokens.push_back(drawn);
  }
  EXPECT_EQ(text, answer.json["choices"][0]["message"]["content"].text());
}

TEST(Server, EndsAtStopStringsAndObeysBiases) {
  const ServedModel served;
  Json body = {{"prompt", "Once upon a time"}, {"temperature", 0.0}, {"max_tokens", 40}};
  const std::string text = served.post("/v1/completions", body).json["choices"][0]["text"].text();
  body["stop"] = Json::array({"never there", text.substr(20, 4)});
  const auto stopped = served.post("/v1/completions", body);
  EXPECT_EQ(stopped.json["choices"][0]["text"].text(),
            text.substr(0, text.find(text.substr(20, 4))));
  EXPECT_EQ(stopped.json["choices"][0]["finish_reason"].text(), "stop");
  body.erase("stop");
  const Json native = {{"prompt", "Once upon a time"},
                       {"temperature", 0.0},
                       {"n_predict", 1},
                       {"return_tokens", true}};
  const Token first = served.post("/completion", native).json["tokens"][0].get<Token>();
  body["logit_bias"] = Json::object({{std::to_string(first), -100}});
  const auto biased = served.post("/v1/completions", body);
  EXPECT_FALSE(biased.json["choices"][0]["text"].text().starts_with(text.substr(0, 3)));
  body["logit_bias"] = Json::array({Json::array({first, false})});
  EXPECT_EQ(served.post("/v1/completions", body).json["choices"][0]["text"],
            biased.json["choices"][0]["text"]);
}

// There are more texts and replies than sequences, so each request waits for a free sequence.
TEST(Server, EmbedsWhileAllSequencesAreInUse) {
  const ServedModel served(2);
  const Json body = {{"input", Json::array({"a bear", std::string(900, 'x')})}};
  const auto alone = served.post("/v1/embeddings", body);
  ASSERT_EQ(alone.status, 200) << alone.body;
  const auto reply = served.post("/v1/chat/completions", chat_body(5, 60));
  std::vector<ServedModel::Answer> texts(6), replies(4);
  std::vector<std::thread> clients;
  for (auto& one : texts) clients.emplace_back([&] { one = served.post("/v1/embeddings", body); });
  for (auto& one : replies) {
    clients.emplace_back([&] { one = served.post("/v1/chat/completions", chat_body(5, 60)); });
  }
  for (std::thread& client : clients) client.join();
  for (const auto& one : texts) EXPECT_EQ(one.json["data"], alone.json["data"]) << one.body;
  for (const auto& one : replies) {
    EXPECT_EQ(one.json["choices"], reply.json["choices"]) << one.body;
  }
}

TEST(Server, NamesTheMemberAtFault) {
  const ServedModel served;
  struct Case {
    std::string path, body, param;
    int status = 400;
  };
  const std::string chat = "/v1/chat/completions", text = "/v1/completions";
  const std::string messages = R"("messages":[{"role":"user","content":"x"}])";
  const std::string reply =
      R"("messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}])";
  const std::vector<Case> cases = {
      {chat, "{", ""},
      {chat, "[]", ""},
      {chat, "{}", "messages"},
      {chat, R"({"messages":"x"})", "messages"},
      {chat, "{" + messages + R"(,"temperature":-1})", "temperature"},
      {chat, "{" + messages + R"(,"top_p":2})", "top_p"},
      {chat, "{" + messages + R"(,"top_k":1.5})", "top_k"},
      {chat, "{" + messages + R"(,"max_tokens":"many"})", "max_tokens"},
      {chat, "{" + messages + R"(,"n":0})", "n"},
      {chat, "{" + messages + R"(,"n":1000})", "n"},
      {chat, "{" + messages + R"(,"stream":1})", "stream"},
      {chat, "{" + messages + R"(,"top_logprobs":3})", "top_logprobs"},
      {chat, "{" + messages + R"(,"logprobs":true,"top_logprobs":21})", "top_logprobs"},
      {chat, "{" + messages + R"(,"logit_bias":{"99999":1}})", "logit_bias"},
      {chat, "{" + messages + R"(,"stop":[1]})", "stop"},
      {chat, "{" + messages + R"(,"response_format":{"type":"xml"}})", "response_format"},
      {chat, "{" + messages + R"(,"tool_choice":"required"})", "tool_choice"},
      {chat, "{" + messages + R"(,"tools":[{}]})", "tools"},
      {chat, "{" + messages + R"(,"continue_final_message":true})", "continue_final_message"},
      {chat, "{" + reply + R"(,"continue_final_message":1})", "continue_final_message"},
      {chat, "{" + reply + R"(,"continue_final_message":true,"add_generation_prompt":true})",
       "continue_final_message"},
      {chat, R"({"messages":[{"role":"assistant","content":" "}],"continue_final_message":true})",
       "continue_final_message"},
      {chat, "{" + reply + R"(,"add_generation_prompt":"no"})", "add_generation_prompt"},
      {chat, R"({"messages":[{"role":"user","content":"a"}],"n":1,"n":1})", ""},
      {text, R"({"prompt":{}})", "prompt"},
      {text, R"({"prompt":[1,"a",[2]]})", "prompt"},
      {text, R"({"prompt":[-1]})", "prompt"},
      {text, "{\"prompt\":\"\xff\"}", ""},
      {"/v1/embeddings", R"({"input":"x","dimensions":100000})", "dimensions"},
      {"/detokenize", R"({"tokens":[4096]})", "tokens"},
  };
  for (const Case& one : cases) {
    const auto answer = served.post(one.path, one.body);
    EXPECT_EQ(answer.status, one.status) << one.body << ' ' << answer.body;
    ASSERT_TRUE(answer.json.is_object()) << answer.body;
    const Json& error = answer.json["error"];
    EXPECT_EQ(error["param"].is_null() ? "" : error["param"].text(), one.param) << one.body;
    EXPECT_EQ(error["type"].text(), "invalid_request_error");
    EXPECT_FALSE(error["message"].text().empty());
    EXPECT_EQ(error["message"].text().find('\x02'), std::string::npos);
  }
  EXPECT_EQ(served.get("/nothing").status, 404);
  EXPECT_EQ(served.get("/v1/chat/completions").status, 405);
  const std::string deep = "{\"messages\":" + std::string(1000, '[') + std::string(1000, ']') + "}";
  EXPECT_EQ(served.post(chat, deep).status, 400);
  Json long_one = {{"prompt", std::string(20000, 'x')}};
  const auto too_long = served.post(text, long_one);
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(too_long.json["error"]["code"].text(), "context_length_exceeded");
}

TEST(Server, RequiresAKeyIfKeysAreSet) {
  ServerOptions options = story_options();
  options.access.keys = {"first", "second key"};
  const ServedModel served(1, options);
  const std::string body = R"({"content":"x"})";
  for (const char* wrong :
       {"", "Bearer ", "Bearer first1", "Bearer firs", "first", "Basic first"}) {
    const auto answer = served.post("/tokenize", body, {{"Authorization", wrong}});
    EXPECT_EQ(answer.status, 401) << wrong;
    EXPECT_EQ(answer.json["error"]["code"].text(), "invalid_api_key");
  }
  EXPECT_EQ(served.post("/tokenize", body, {{"Authorization", "Bearer first"}}).status, 200);
  EXPECT_EQ(served.post("/tokenize", body, {{"Authorization", "bearer second key"}}).status, 200);
  EXPECT_EQ(served.post("/tokenize", body, {{"X-Api-Key", "first"}}).status, 200);
  EXPECT_EQ(served.get("/health").status, 200);
  EXPECT_EQ(served.get("/").status, 200);
  for (const char* path : {"/v1/models", "/props", "/slots", "/metrics"}) {
    EXPECT_EQ(served.get(path).status, 401) << path;
  }
}

TEST(Server, KeepsOtherSitesOut) {
  const ServedModel served(1);
  const std::string body = R"({"content":"x"})";
  EXPECT_EQ(served.post("/tokenize", body, {{"Host", "evil.example"}}).status, 403);
  EXPECT_EQ(served.post("/tokenize", body, {{"Host", "localhost:80"}}).status, 200);
  for (const char* host :
       {"localhost:80@evil.example", "127.0.0.1:evil.example", "localhost:80:80"})
    EXPECT_EQ(served.post("/tokenize", body, {{"Host", host}}).status, 403) << host;
  const auto foreign = served.post("/tokenize", body, {{"Origin", "https://evil.example"}});
  EXPECT_EQ(foreign.status, 403);
  EXPECT_FALSE(foreign.headers.contains("Access-Control-Allow-Origin"));
  const std::string own = "127.0.0.1:" + std::to_string(served.port());
  EXPECT_EQ(served.post("/tokenize", body, {{"Host", own}, {"Origin", "http://" + own}}).status,
            200);
  ServerOptions options = story_options();
  options.access.origins = {"https://friend.example"};
  const ServedModel open(1, options);
  const httplib::Headers friends = {{"Origin", "https://friend.example"}};
  const auto allowed = open.post("/tokenize", body, friends);
  EXPECT_EQ(allowed.status, 200);
  EXPECT_EQ(allowed.headers.find("Access-Control-Allow-Origin")->second, "https://friend.example");
  auto client = open.client();
  const auto preflight = client.Options("/v1/chat/completions", friends);
  ASSERT_TRUE(preflight);
  EXPECT_EQ(preflight->status, 204);
  EXPECT_NE(preflight->get_header_value("Access-Control-Allow-Headers").find("Authorization"),
            std::string::npos);
  // A header that occurs twice has a value that matches no origin (Fetch standard).
  for (const char* name : {"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Vary"})
    EXPECT_EQ(preflight->get_header_value_count(name), 1U) << name;
  EXPECT_EQ(open.post("/tokenize", body, {{"Origin", "https://evil.example"}}).status, 403);
}

TEST(Server, EmbedsTexts) {
  const ServedModel served;
  const auto one = served.post("/v1/embeddings", Json{{"input", "A little cat."}, {"model", "x"}});
  ASSERT_EQ(one.status, 200) << one.body;
  const auto numbers = one.json["data"][0]["embedding"].get<std::vector<float>>();
  ASSERT_EQ(std::ssize(numbers), story_model().config().width);
  double length = 0;
  for (const float x : numbers) length += double{x} * double{x};
  EXPECT_NEAR(length, 1, 1e-5);
  // The mean of rows of hidden states, computed by the test.
  const auto tokens = story_model().tokenizer().encode("A little cat.", {.add_bos = true});
  const auto backend = make_backend({.device = "cpu"});
  RunLimits limits = story_limits(1);
  limits.output_tokens = limits.batch_tokens;
  Session session(story_model(), *backend, limits);
  Batch batch;
  batch.add(0, tokens.data(), std::ssize(tokens), Batch::Want::all);
  std::vector<float> rows(tokens.size() * numbers.size());
  backend->download(session.transformer().hidden(batch, session.cache()), std::ssize(tokens), rows);
  std::vector<double> mean(numbers.size());
  double mean_length = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) mean[i % numbers.size()] += double{rows[i]};
  for (const double x : mean) mean_length += x * x;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    EXPECT_NEAR(numbers[i], mean[i] / std::sqrt(mean_length), 1e-6) << i;
  }
  const auto many = served.post(
      "/v1/embeddings", Json{{"input", Json::array({"A little cat.", std::string(600, 'x')})}});
  EXPECT_EQ(many.json["data"].size(), 2u);
  EXPECT_EQ(many.json["data"][0]["embedding"], one.json["data"][0]["embedding"]);
}

// The reply continues the last message's text directly, without template text in
// between.
TEST(Server, GoesOnFromTheLastMessage) {
  const ServedModel served(1);
  const auto body = [](std::string_view text, Json more) {
    more["messages"] = kQuestion;
    more["messages"].push_back({{"role", "assistant"}, {"content", std::string(text)}});
    return more;
  };
  const auto prompt = [&](std::string_view text, const Json& more) {
    return served.post("/apply-template", body(text, more)).json["prompt"].text();
  };
  const std::string question = "<s>[INST] Tell a story. [/INST]";
  EXPECT_EQ(prompt("Once upon", Json::object({{"continue_final_message", true}})),
            question + " Once upon");
  EXPECT_EQ(prompt("Once upon", Json::object({{"add_generation_prompt", false}})),
            question + " Once upon </s>");
  Json wanted = chat_body(9, 20);
  wanted["continue_final_message"] = true;
  wanted["add_generation_prompt"] = false;
  const auto answer = served.post("/v1/chat/completions", body("Once upon", wanted));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto tokens = story_model().tokenizer().encode_parts(std::vector<TextPart>{
      {"<s>[INST] ", true}, {"Tell a story.", false}, {" [/INST] ", true}, {"Once upon", false}});
  const EngineReply expected = Alone().write(tokens, sampling_of(9), stop_rules(20));
  EXPECT_EQ(answer.json["choices"][0]["message"]["content"].text(), expected.text);
  EXPECT_EQ(answer.json["usage"]["prompt_tokens"].get<std::size_t>(), tokens.size());
}

TEST(Server, TurnsTextIntoTokensAndBack) {
  const ServedModel served(1);
  const std::string text = "Once upon a time, \"Zoë\" – 日本.";
  const auto tokens = served.post("/tokenize", Json::object({{"content", text}}));
  const auto expected = story_model().tokenizer().encode(text, {});
  EXPECT_EQ(tokens.json["tokens"].get<std::vector<Token>>(), expected);
  const auto back = served.post("/detokenize", Json::object({{"tokens", tokens.json["tokens"]}}));
  EXPECT_EQ(back.json["content"].text(), story_model().tokenizer().decode(expected, true));
  const auto prompt = served.post("/apply-template", Json::object({{"messages", kQuestion}}));
  EXPECT_EQ(prompt.json["prompt"].text(), "<s>[INST] Tell a story. [/INST]");
  const auto count =
      served.post("/v1/chat/completions/input_tokens", Json::object({{"messages", kQuestion}}));
  EXPECT_EQ(count.json["input_tokens"].get<std::size_t>(), question_tokens().size());
}

TEST(Server, TellsWhatItIsAndWhatItDoes) {
  const ServedModel served(3);
  const std::string name = served.get("/v1/models").json["data"][0]["id"].text();
  EXPECT_EQ(name, "storyteller-int8");
  EXPECT_EQ(served.get("/v1/models/" + name).json["id"].text(), name);
  EXPECT_EQ(served.get("/v1/models/other").status, 404);
  EXPECT_EQ(served.get("/health").json["status"].text(), "ok");
  const Json props = served.get("/props").json;
  EXPECT_EQ(props["total_slots"].get<int>(), 3);
  EXPECT_EQ(props["bos_token"].text(), "<s>");
  EXPECT_EQ(props["eos_token"].text(), "</s>");
  EXPECT_EQ(served.get("/slots").json.size(), 3u);
  served.post("/v1/chat/completions", chat_body(1, 7));
  const std::string metrics = served.get("/metrics").body;
  EXPECT_NE(metrics.find("\nleq:requests_total 1\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\nleq:tokens_predicted_total 7\n"), std::string::npos) << metrics;
  const auto native = served.post(
      "/completion", Json{{"prompt", "Once"}, {"n_predict", 4}, {"return_tokens", true}});
  EXPECT_EQ(native.json["tokens"].size(), 4u);
  EXPECT_EQ(native.json["stop_type"].text(), "limit");
}

// Returns the value of a metric; -1 if there is none.
double metric(const std::string& metrics, const std::string& name) {
  const std::size_t at = metrics.find("\nleq:" + name + " ");
  return at == std::string::npos ? -1 : std::stod(metrics.substr(at + name.size() + 6));
}

TEST(Server, CountsTimesAsHistograms) {
  const ServedModel served(2);
  for (const std::int64_t seed : {1, 2}) served.post("/v1/chat/completions", chat_body(seed, 7));
  const std::string metrics = served.get("/metrics").body;
  const std::string first = "time_to_first_token_seconds", next = "inter_token_latency_seconds",
                    whole = "e2e_request_latency_seconds";
  EXPECT_EQ(metric(metrics, first + "_count"), 2) << metrics;
  EXPECT_EQ(metric(metrics, next + "_count"), 12);
  EXPECT_EQ(metric(metrics, whole + "_count"), 2);
  const double tokens = metric(metrics, first + "_sum") + metric(metrics, next + "_sum");
  EXPECT_GT(metric(metrics, first + "_sum"), 0);
  EXPECT_LE(tokens, metric(metrics, whole + "_sum"));
  for (const std::string& name : {first, next, whole}) {
    EXPECT_NE(metrics.find("# TYPE leq:" + name + " histogram\n"), std::string::npos);
    double below = 0;
    for (const char* bound : {"0.001", "0.01", "0.25", "1", "250", "+Inf"}) {
      const double now = metric(metrics, name + "_bucket{le=\"" + bound + "\"}");
      EXPECT_GE(now, below) << name << ' ' << bound;
      below = now;
    }
    EXPECT_EQ(below, metric(metrics, name + "_count"));
  }
}

TEST(Server, AHistogramCountsEachValueBelowItsBound) {
  TimeHistogram histogram;
  const std::vector<double> values = {0, 0.001, 0.0011, 0.05, 0.3, 7, 250, 1e4};
  for (const double value : values) histogram.add(value);
  histogram.add(0.02, 3);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    below += histogram.counts[i];
    const double bound = i < TimeHistogram::kBounds.size() ? TimeHistogram::kBounds[i] : 1e9;
    EXPECT_EQ(below, std::ranges::count_if(values, [&](double v) { return v <= bound; }) +
                         (bound >= 0.02 ? 3 : 0));
  }
  EXPECT_DOUBLE_EQ(histogram.sum, 0.001 + 0.0011 + 0.05 + 0.3 + 7 + 250 + 1e4 + 0.06);
}

bool has_no_replies(const ServedModel& served) {
  for (const Json& slot : served.get("/slots").json) {
    if (slot["is_processing"].get<bool>()) return false;
  }
  return true;
}

TEST(Server, CancelsTheReplyOfADisconnectedClient) {
  const ServedModel served(1);
  for (const char* stream : {"true", "false"}) {
    RawClient client(served.port());
    const std::string body = R"({"prompt":"Once","ignore_eos":true,"max_tokens":1000,"stream":)" +
                             std::string(stream) + "}";
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    const Stopwatch begin;
    while (has_no_replies(served) && begin.seconds() < 5) {
    }
    client.close();
    const Stopwatch watch;
    while (!has_no_replies(served) && watch.seconds() < 20) {
    }
    EXPECT_TRUE(has_no_replies(served)) << stream;
  }
  const std::string metrics = served.get("/metrics").body;
  EXPECT_NE(metrics.find("leq:requests_cancelled_total 2\n"), std::string::npos) << metrics;
}

TEST(Server, RefusesWhatTheQueueDoesNotHold) {
  ServerOptions options = story_options();
  options.most_waiting = 1;
  const ServedModel served(1, options);
  Json body = chat_body(1, 8);
  body["n"] = 2;
  RawClient client(served.port());
  client.send(
      plain_request("POST", "/v1/completions",
                    R"({"prompt":"Once","ignore_eos":true,"max_tokens":1000,"stream":true})"));
  client.read_until("data: ");
  const auto refused = served.post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json["error"]["code"].text(), "queue_full");
  EXPECT_TRUE(refused.headers.contains("Retry-After"));
  client.close();
  while (!has_no_replies(served)) std::this_thread::yield();
  EXPECT_EQ(served.post("/v1/chat/completions", body).status, 200);
  // What never fits need not be tried again.
  body["n"] = 3;
  const auto choices = served.post("/v1/chat/completions", body);
  ASSERT_EQ(choices.status, 400);
  EXPECT_EQ(choices.json["error"]["param"].text(), "n");
  const auto prompts = served.post("/v1/completions", R"({"prompt":["a","b","c"]})");
  ASSERT_EQ(prompts.status, 400);
  EXPECT_EQ(prompts.json["error"]["param"].text(), "prompt");
}

// Requests that feed texts without a reply occupy threads, too, of which some are left for others.
TEST(Server, RefusesRequestsOfAnyKindBeyondItsQueue) {
  ServerOptions options = story_options();
  options.most_waiting = 1;
  ServedModel served(1, options);
  const auto lease = [&] { return served.server().models().lease("", [] { return true; }); };
  std::vector<ModelPool::Lease> held;
  for (int i = 0; i < 2; ++i) held.push_back(lease());
  const auto refused = served.post("/v1/embeddings", R"({"input":"x"})");
  ASSERT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(refused.json["error"]["code"].text(), "queue_full");
  EXPECT_EQ(served.get("/health").status, 200);
  EXPECT_EQ(metric(served.get("/metrics").body, "requests_refused_total"), 1);
  held.pop_back();
  EXPECT_EQ(served.post("/v1/embeddings", R"({"input":"x"})").status, 200);
}

TEST(Server, CountsNothingOfARequestThatItRefuses) {
  const ServedModel served(1);
  const auto refused = served.post("/v1/completions", R"({"prompt":[[5,6,7],[]]})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json["error"]["message"].text(),
            "prompt: expected at least one token in each text");
  EXPECT_EQ(served.post("/v1/completions", R"({"prompt":"x","max_tokens":1})").status, 200);
  const std::string metrics = served.get("/metrics").body;
  EXPECT_EQ(metric(metrics, "requests_total"), 1) << metrics;
  EXPECT_EQ(metric(metrics, "requests_cancelled_total"), 0);
  EXPECT_EQ(metric(metrics, "e2e_request_latency_seconds_count"), 1);
}

TEST(Server, FinishesItsStreamsBeforeItStops) {
  ServedModel served(2);
  RawClient client(served.port());
  const std::string body =
      R"({"prompt":"Once","ignore_eos":true,"max_tokens":300,"stream":true,"seed":4})";
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  client.read_until("data: ");
  served.server().stop(60);
  EXPECT_NE(client.read_all().find("data: [DONE]"), std::string::npos);
}

TEST(Server, InterruptsWhatTakesTooLongToStop) {
  ServedModel served(1);
  RawClient client(served.port());
  const std::string body = R"({"prompt":"Once","ignore_eos":true,"max_tokens":1000,"stream":true})";
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  client.read_until("data: ");
  const Stopwatch watch;
  served.server().stop(0);
  EXPECT_LT(watch.seconds(), 10);
  EXPECT_NE(client.read_all().find("finish_reason"), std::string::npos);
}

// The only sequence writes the reply, so that the prompt's log probabilities come after its end.
TEST(Server, EndsAStreamWhosePromptIsRefusedWithAnError) {
  ServedModel served(1);
  RawClient client(served.port());
  client.send(plain_request("POST", "/v1/completions",
                            R"({"prompt":"Once","echo":true,"logprobs":1,"ignore_eos":true,)"
                            R"("max_tokens":1000,"stream":true})"));
  client.read_until("\r\n\r\n");
  served.server().stop(0);
  const std::string stream = client.read_all();
  EXPECT_LT(stream.find("the server is shutting down"), stream.find("data: [DONE]")) << stream;
}

// The server closes in the third step of a text that takes more, and keeps no sequence for it.
TEST(Server, EndsTheTextsThatItsShutdownOvertakes) {
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  RunLimits limits = story_limits(1);
  limits.batch_tokens = 16;
  Session session(story_model(), *backend, limits);
  EngineThread* closed = nullptr;
  int steps = 0;
  EngineOptions options;
  options.check_step = [&] {
    if (++steps == 3) closed->close(0);
  };
  EngineThread engine(session, story_model().tokenizer(), options, 1);
  closed = &engine;
  EmbeddedText text = {.tokens = std::vector<Token>(200, 5)};
  EXPECT_THROW(feed_text(engine, text), Busy);
  EXPECT_EQ(steps, 3);
  bool is_idle = false;
  engine.between_steps([&](Engine& one) { is_idle = one.has_idle_sequence(); });
  EXPECT_TRUE(is_idle);
  EmbeddedText next = {.tokens = {5}};
  EXPECT_THROW(feed_text(engine, next), Busy);
}

TEST(Server, ServesThePageWithAPolicyThatAllowsNothingElse) {
  const ServedModel served(1);
  const auto page = served.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_TRUE(page.body.starts_with("<!doctype html>"));
  const std::string policy = page.headers.find("Content-Security-Policy")->second;
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'sha256-")) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_EQ(page.body.find("src=\"http"), std::string::npos);
  EXPECT_EQ(page.body.find("innerHTML"), std::string::npos);
}

TEST(Server, MetricsAgreeWithWhatWasWritten) {
  ServerOptions options = story_options();
  options.engine.speculate = false;
  const ServedModel served(1, options);
  const std::string body = R"({"prompt":"Once upon a time","max_tokens":7,"ignore_eos":true})";
  for (int i = 0; i < 2; ++i) ASSERT_EQ(served.post("/v1/completions", body).status, 200);
  const Tokenizer& tokenizer = story_model().tokenizer();
  const auto tokens = static_cast<double>(
      tokenizer.encode("Once upon a time", {.add_bos = tokenizer.add_bos()}).size());
  const std::string metrics = served.get("/metrics").body;
  const auto value = [&](const char* name) { return metric(metrics, name); };
  EXPECT_EQ(value("prompt_tokens_total"), tokens + 1) << metrics;
  EXPECT_EQ(value("prompt_tokens_cached_total"), tokens - 1);
  EXPECT_EQ(value("tokens_predicted_total"), 14);
  EXPECT_EQ(value("n_decode_total"), 14) << "a step for each token";
  EXPECT_GT(value("prompt_seconds_total"), 0);
  EXPECT_NEAR(value("prompt_tokens_seconds") * value("prompt_seconds_total"), tokens + 1, 1e-6);
  EXPECT_NEAR(value("predicted_tokens_seconds") * value("tokens_predicted_seconds_total"), 12,
              1e-6);
  for (const char* name :
       {"requests_refused_total", "requests_failed_total", "requests_cancelled_total",
        "evictions_total", "draft_tokens_total", "accepted_tokens_total", "kv_cache_usage_ratio",
        "requests_processing", "requests_deferred"}) {
    EXPECT_EQ(value(name), 0) << name;
  }
}

TEST(Server, ShowsWhatRunsAndWhatWaits) {
  const ServedModel served(1);
  const Tokenizer& tokenizer = story_model().tokenizer();
  RawClient first(served.port()), second(served.port());
  for (const RawClient* client : {&first, &second}) {
    client->send(plain_request(
        "POST", "/v1/completions",
        R"({"prompt":"Once upon a time","ignore_eos":true,"max_tokens":1000,"stream":true})"));
  }
  bool seen = false;
  Json slots;
  for (const Stopwatch watch; !seen && watch.seconds() < 20;) {
    const std::string metrics = served.get("/metrics").body;
    const double usage = metric(metrics, "kv_cache_usage_ratio");
    slots = served.get("/slots").json;
    seen = metric(metrics, "requests_processing") == 1 &&
           metric(metrics, "requests_deferred") == 1 && usage > 0 && usage < 1 &&
           slots[0].contains("n_decoded") && slots[0]["n_decoded"].get<int>() > 0;
  }
  ASSERT_TRUE(seen);
  EXPECT_TRUE(slots[0]["is_processing"].get<bool>());
  EXPECT_EQ(slots[0]["n_prompt_tokens"].get<std::size_t>(),
            tokenizer.encode("Once upon a time", {.add_bos = tokenizer.add_bos()}).size());
  first.close();
  second.close();
  while (!has_no_replies(served)) std::this_thread::yield();
}

// A reply of which no token can be drawn fails with the reason, alone, and is counted.
TEST(Server, TellsWhyNoTokenCanBeDrawn) {
  const ServedModel served(1);
  const Tokenizer& tokenizer = story_model().tokenizer();
  Json banned = Json::array();
  for (Token id = 0; id < static_cast<Token>(tokenizer.size()); ++id) {
    if (tokenizer.token_bytes(id) == "q") banned.push_back(Json::array({id, false}));
  }
  const std::string why = "sampler: every token is banned";
  Json body = {{"prompt", "Once"}, {"grammar", "root ::= \"q\""}, {"logit_bias", banned}};
  for (const int choices : {1, 2}) {
    body["n"] = choices;
    const auto answer = served.post("/v1/completions", body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.json["error"]["message"].text(), why) << answer.body;
  }
  body["n"] = 1;
  body["stream"] = true;
  const std::string stream = served.post("/v1/completions", body).body;
  EXPECT_LT(stream.find(why), stream.find("data: [DONE]")) << stream;
  EXPECT_EQ(stream.find("\"finish_reason\":\"stop\""), std::string::npos);
  EXPECT_EQ(served.post("/v1/completions", R"({"prompt":"x","max_tokens":1})").status, 200);
  const std::string metrics = served.get("/metrics").body;
  EXPECT_EQ(metric(metrics, "requests_total"), 5);
  EXPECT_GE(metric(metrics, "requests_failed_total"), 3);
  EXPECT_EQ(metric(metrics, "requests_failed_total") + metric(metrics, "requests_cancelled_total"),
            4);
}

}  // namespace
}  // namespace leq::test
