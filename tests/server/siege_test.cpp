// The server must keep serving many slow clients and many clients that send garbage. ctest runs a
// small number; LEQ_SLOW_CONNECTIONS and LEQ_HOSTILE_BODIES set larger ones.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>

#include "base/random.h"
#include "server/raw_client.h"
#include "server/served_model.h"

namespace leq::test {
namespace {

int count_of(const char* variable, int usual) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : usual;
}

const std::vector<std::string>& good_bodies() {
  static const std::vector<std::string> all = {
      R"({"messages":[{"role":"user","content":"Tell a story."}],"max_tokens":3,"seed":1})",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"max_tokens":2,)"
      R"("logprobs":true,"top_logprobs":2,"stream":true,"stop":["x","y"],"n":2})",
      R"({"prompt":["a",[1,2,3]],"max_tokens":2,"logit_bias":{"5":-100},"temperature":0.5})",
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":2,"tools":[{"type":"function",)"
      R"("function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto"})",
      R"({"input":["a","b"],"encoding_format":"base64"})",
      R"({"content":"some text","tokens":[1,2,3],"with_pieces":true})",
      R"({"model":"m","instructions":"x","input":[{"type":"message","role":"user","content":)"
      R"([{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f",)"
      R"("arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"b"}],)"
      R"("reasoning":{"effort":"low"},"max_output_tokens":2,"stream":true})",
      R"({"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}],"messages":)"
      R"([{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":)"
      R"([{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":)"
      R"([{"type":"tool_result","tool_use_id":"t","content":"b"}]}],"max_tokens":2})",
      R"({"query":"a","documents":["b",{"text":"c"}],"top_n":1,"return_documents":true})",
  };
  return all;
}

// Changes, removes, doubles or cuts bytes; sometimes returns deeply nested text.
std::string hostile(const std::string& good, Random& random) {
  std::string body = good;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.bits() % n); };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(body.size());
    switch (below(7)) {
      case 0:
        body[at] = static_cast<char>(below(256));
        break;
      case 1:
        body.erase(at, 1 + below(8));
        break;
      case 2:
        body.insert(at, body.substr(below(body.size()), below(40)));
        break;
      case 3:
        body.resize(at);
        break;
      case 4:
        body.insert(at, std::string(1 + below(300), "[{\""[below(3)]));
        break;
      case 5:
        body.insert(at, std::to_string(random.bits()));
        break;
      default:
        body.insert(at, "\\ud800\\u0000");
    }
    if (body.empty()) body = "{";
  }
  return body;
}

TEST(Siege, LeavesTheServerServing) {
  constexpr const char* kPaths[] = {"/v1/chat/completions",
                                    "/v1/completions",
                                    "/completion",
                                    "/v1/embeddings",
                                    "/tokenize",
                                    "/detokenize",
                                    "/apply-template",
                                    "/v1/responses",
                                    "/v1/messages",
                                    "/v1/rerank",
                                    "/v1/messages/count_tokens"};
  const int slow_count = count_of("LEQ_SLOW_CONNECTIONS", 200);
  const int body_count = count_of("LEQ_HOSTILE_BODIES", 600);
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  ServerOptions options = story_options();
  options.http.connections = slow_count + 50;
  options.http.request_seconds = 3600;  // slow clients stay connected even on a busy machine
  options.max_tokens = 8;
  ServedModel served(4, options);
  const std::string question =
      R"({"messages":[{"role":"user","content":"Tell a story."}],"max_tokens":20,"seed":1})";
  const Json expected = served.post("/v1/chat/completions", question).json["choices"];
  ASSERT_EQ(expected.size(), 1u);

  std::vector<RawClient> slow;
  for (int i = 0; i < slow_count; ++i) {
    slow.emplace_back(served.port());
    slow.back().send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le");
  }
  Random random(20);
  int refused = 0;
  auto client = served.client();
  client.set_keep_alive(true);
  for (int i = 0; i < body_count; ++i) {
    const auto& good = good_bodies()[static_cast<std::size_t>(i) % good_bodies().size()];
    const std::string body = hostile(good, random);
    const char* path = kPaths[random.bits() % std::size(kPaths)];
    const auto answer = client.Post(path, body, "application/json");
    ASSERT_TRUE(answer) << path << ' ' << body;
    EXPECT_TRUE(answer->status == 200 || answer->status == 400) << answer->status << ' ' << body;
    refused += answer->status == 400 ? 1 : 0;
    if (i % 50 == 0) slow[static_cast<std::size_t>(i / 50) % slow.size()].send("n");
  }
  RecordProperty("refused", refused);
  EXPECT_GT(refused, body_count / 2);
  EXPECT_GE(served.server().connections().waiting, slow_count);
  EXPECT_EQ(served.post("/v1/chat/completions", question).json["choices"], expected);
}

}  // namespace
}  // namespace leq::test
