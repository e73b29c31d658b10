// Requests with the headers and members that widely used clients send, byte for byte over a socket.
// The reply must contain what these clients rely on.
#include <gtest/gtest.h>

#include "server/calling_model.h"
#include "server/raw_client.h"
#include "server/served_model.h"

namespace leq::test {
namespace {

struct Recorded {
  std::string client, request_line, headers, body;
  std::vector<std::string> parts;  // expected in the reply, head and body
};

std::string sent(const Recorded& recorded) {
  std::string text = recorded.request_line + "\r\nHost: localhost\r\n" + recorded.headers;
  if (!recorded.body.empty()) {
    text += "Content-Type: application/json\r\nContent-Length: " +
            std::to_string(recorded.body.size()) + "\r\n";
  }
  return text + "Connection: close\r\n\r\n" + recorded.body;
}

// Headers and members as written by LangChain 1.7 and OpenAI's client 3.54.
const std::string kPythonClient =
    "Accept-Encoding: gzip, deflate\r\nauthorization: Bearer sk-none\r\naccept: "
    "application/json\r\n"
    "user-agent: OpenAI/Python 3.54.0\r\nx-stainless-lang: python\r\n"
    "x-stainless-package-version: 3.54.0\r\nx-stainless-os: Linux\r\nx-stainless-arch: x64\r\n"
    "x-stainless-runtime: CPython\r\nx-stainless-runtime-version: 3.11.7\r\nx-stainless-async: "
    "false\r\n"
    "x-stainless-raw-response: true\r\nx-stainless-retry-count: 0\r\n";
const std::string kWebUi =
    "Accept-Encoding: gzip, deflate, br\r\nAuthorization: Bearer sk-test\r\nAccept: */*\r\n"
    "User-Agent: Python/3.11 aiohttp/3.14.5\r\n";

const std::string kMultiply =
    R"({"type":"function","function":{"name":"multiply","description":"Multiply two whole numbers.",)"
    R"("parameters":{"properties":{"a":{"type":"integer"},"b":{"type":"integer"}},)"
    R"("required":["a","b"],"type":"object"}}})";
const std::string kWeather =
    R"({"type":"function","function":{"name":"weather","description":"The weather of a town.",)"
    R"("parameters":{"properties":{"town":{"type":"string"},"unit":{"anyOf":[{"type":"string"},)"
    R"({"type":"null"}],"default":null}},"required":["town"],"type":"object"}}})";
const std::string kCat =
    R"("properties":{"name":{"description":"what it is called","maxLength":12,"title":"Name",)"
    R"("type":"string"},"age":{"maximum":30,"minimum":0,"title":"Age","type":"integer"},"colour":)"
    R"({"enum":["black","red",null],"title":"Colour"}},"required":["name","age","colour"],)"
    R"("title":"Cat","type":"object","additionalProperties":false)";

// Returns a body of ChatOpenAI, whose members have the order in which it writes them.
std::string chat(bool stream, const std::string& messages, int tokens, const std::string& more) {
  return std::string(R"({"model":"storyteller","stream":)") + (stream ? "true" : "false") +
         R"(,"messages":[)" + messages + R"(],"max_completion_tokens":)" + std::to_string(tokens) +
         R"(,"seed":7,"temperature":0.7)" + more + "}";
}
const std::string kAsk = R"({"content":"What is 3 times 4?","role":"user"})";
const std::string kPost = "POST /v1/chat/completions HTTP/1.1";

std::vector<Recorded> of_langchain() {
  const std::string one =
      R"(,"tool_choice":{"type":"function","function":{"name":"multiply"}},"tools":[)" + kMultiply +
      "]";
  const std::string any = R"(,"parallel_tool_calls":false,"tool_choice":"required","tools":[)" +
                          kMultiply + "," + kWeather + "]";
  const std::vector<std::string> whole = {"200 OK", R"("object":"chat.completion")",
                                          R"("role":"assistant")", R"("prompt_tokens_details":{)"};
  const std::vector<std::string> events = {"200 OK", "Content-Type: text/event-stream",
                                           R"("object":"chat.completion.chunk")",
                                           "data: [DONE]\n\n"};
  const std::vector<std::string> call = {"200 OK", R"("finish_reason":"tool_calls")",
                                         R"("name":"multiply")", R"("type":"function")"};
  return {
      {"invoke", kPost, kPythonClient,
       chat(false,
            R"({"content":"You tell stories.","role":"system"},{"content":"Hello","role":"user"})",
            5, ""),
       whole},
      {"stream", kPost, kPythonClient, chat(true, kAsk, 5, ""), events},
      {"stream with usage",
       kPost,
       kPythonClient,
       chat(true, kAsk, 5, R"(,"stream_options":{"include_usage":true})"),
       {"200 OK", R"("usage":{"completion_tokens":5)", "data: [DONE]\n\n"}},
      {"logprobs",
       kPost,
       kPythonClient,
       R"({"model":"storyteller","stream":false,"messages":[)" + kAsk +
           R"(],"logprobs":true,"max_completion_tokens":3,"seed":7,"temperature":0.7,"top_logprobs":2})",
       {"200 OK", R"("logprobs":{"content":[)", R"("top_logprobs":[{)"}},
      {"stop", kPost, kPythonClient, chat(false, kAsk, 5, R"(,"stop":["\n"])"), whole},
      {"bind_tools", kPost, kPythonClient,
       chat(false, kAsk, 5, R"(,"tools":[)" + kMultiply + "," + kWeather + "]"), whole},
      {"bind_tools, strict", kPost, kPythonClient,
       chat(
           false, kAsk, 5,
           R"(,"tools":[{"type":"function","function":{"name":"multiply","parameters":{"properties":{"a":)"
           R"({"type":"integer"}},"required":["a"],"type":"object","additionalProperties":false},"strict":true}}])"),
       whole},
      {"bind_tools, one", kPost, kPythonClient, chat(false, kAsk, 120, one), call},
      {"bind_tools, one, streamed", kPost, kPythonClient, chat(true, kAsk, 120, one), call},
      {"bind_tools, any",
       kPost,
       kPythonClient,
       chat(false, kAsk, 200, any),
       {"200 OK", R"("tool_calls":[{"function":{"arguments":)"}},
      {"a tool's answer", kPost, kPythonClient,
       chat(
           false,
           kAsk +
               R"(,{"content":null,"role":"assistant","tool_calls":[{"type":"function","id":"call_1",)"
               R"("function":{"name":"multiply","arguments":"{\"a\": 3, \"b\": 4}"}}]},)"
               R"({"content":"12","role":"tool","tool_call_id":"call_1"})",
           5, R"(,"tools":[)" + kMultiply + "]"),
       whole},
      {"with_structured_output",
       kPost,
       kPythonClient,
       chat(
           false, kAsk, 200,
           R"(,"response_format":{"type":"json_schema","json_schema":{"schema":{"description":"A cat.",)" +
               kCat + R"(},"name":"Cat","strict":true}})"),
       {"200 OK", R"("content":"{)", R"(\"name\":)", R"(\"colour\":)",
        R"("finish_reason":"stop")"}},
      {"with_structured_output, by a call",
       kPost,
       kPythonClient,
       chat(
           false, kAsk, 200,
           R"(,"parallel_tool_calls":false,"tool_choice":{"type":"function","function":{"name":"Cat"}},)"
           R"("tools":[{"type":"function","function":{"name":"Cat","description":"A cat.","parameters":{)" +
               kCat + "}}}]"),
       {"200 OK", R"("name":"Cat")", R"(\"colour\":)", R"("finish_reason":"tool_calls")"}},
      {"with_structured_output, json_mode",
       kPost,
       kPythonClient,
       chat(false, kAsk, 60, R"(,"response_format":{"type":"json_object"})"),
       {"200 OK", R"("content":"{)"}},
      {"OpenAI",
       "POST /v1/completions HTTP/1.1",
       kPythonClient,
       R"({"model":"storyteller","prompt":["Once upon"],"frequency_penalty":0,"logprobs":null,"max_tokens":6,)"
       R"("n":1,"presence_penalty":0,"seed":null,"temperature":0.0,"top_p":1})",
       {"200 OK", R"("object":"text_completion")", R"("completion_tokens":6)"}},
      {"OpenAIEmbeddings",
       "POST /v1/embeddings HTTP/1.1",
       kPythonClient,
       R"({"model":"storyteller","input":["a cat","a dog"],"encoding_format":"base64"})",
       {"200 OK", R"("object":"embedding")", R"("index":1)", R"("usage":{)"}},
      {"OpenAIEmbeddings of ids",
       "POST /v1/embeddings HTTP/1.1",
       kPythonClient,
       R"({"model":"storyteller","input":[[15,27,99],[4]],"encoding_format":"base64"})",
       {"200 OK", R"("object":"embedding")", R"("index":1)", R"("usage":{)"}},
      {"OpenAIEmbeddings of another size",
       "POST /v1/embeddings HTTP/1.1",
       kPythonClient,
       R"({"model":"storyteller","input":["a cat"],"dimensions":64,"encoding_format":"base64"})",
       {"200 OK", R"("object":"embedding")", R"("usage":{)"}},
  };
}

// Requests of Open WebUI 0.12.4 to leq-server: a chat with settings (params), a chat with tools,
// and the requests of its background tasks. Texts are shortened.
std::vector<Recorded> of_open_webui() {
  const std::string ask =
      R"("messages":[{"role":"user","content":"Tell me a story about a lighthouse."}])";
  const std::string begin = R"({"model":"storyteller-int8",)";
  const auto task = [&](const std::string& name, const std::string& text, const std::string& more,
                        const std::string& stopped) {
    return Recorded{"Open WebUI asks for " + name,
                    kPost,
                    kWebUi,
                    begin + R"("messages":[{"role":"user","content":")" + text +
                        R"("}],"stream":false)" + more + "}",
                    {"200 OK", R"("message":{"content":)", stopped, R"("total_tokens":)"}};
  };
  return {
      {"Open WebUI lists models",
       "GET /v1/models HTTP/1.1",
       kWebUi,
       "",
       {"200 OK", R"("object":"list")", R"("id":"storyteller-int8")"}},
      {"Open WebUI chats",
       kPost,
       kWebUi,
       begin + ask + R"(,"stream":false})",
       {"200 OK", R"("message":{"content":)", R"("finish_reason":")", R"("total_tokens":)"}},
      {"Open WebUI chats with settings",
       kPost,
       kWebUi,
       begin + ask +
           R"(,"stream":true,"stream_options":{"include_usage":true},"temperature":0.7,"top_p":0.9,)"
           R"("max_tokens":24,"stop":["\n\n"],"seed":7,"frequency_penalty":0.1})",
       {"200 OK", "Content-Type: text/event-stream", R"("delta":{"content":"","role":"assistant"})",
        R"("usage":{"completion_tokens":)", "data: [DONE]\n\n"}},
      {"Open WebUI goes on with a chat",
       kPost,
       kWebUi,
       begin +
           R"("messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},)"
           R"({"role":"assistant","content":"Once."},{"role":"user","content":[{"type":"text",)"
           R"("text":"Go on."}]}],"stream":true,"max_tokens":16,"top_k":40,"min_p":0.05,)"
           R"("repeat_penalty":1.1,"reasoning_effort":"low"})",
       {"200 OK", R"("finish_reason":")", "data: [DONE]\n\n"}},
      {"Open WebUI offers tools",
       kPost,
       kWebUi,
       begin + ask + R"(,"stream":true,"tools":[)" + kMultiply +
           R"(],"tool_choice":"auto","max_tokens":16})",
       {"200 OK", R"("finish_reason":")", "data: [DONE]\n\n"}},
      task("a title", R"(### Task:\nName this chat in JSON, e.g. { \"title\": \"Rain\" }.)",
           R"(,"max_tokens":1000)", R"("finish_reason":")"),
      task("tags", R"(### Task:\nTag it. ### Output:\nJSON format: { \"tags\": [\"a\"] })", "",
           R"("finish_reason":")"),
      task("an emoji", R"(Answer with one of 😊, 😢, 😡. Message: ```Once```)", R"(,"max_tokens":4)",
           R"("finish_reason":"length")"),
      {"Open WebUI embeds",
       "POST /v1/embeddings HTTP/1.1",
       kWebUi,
       begin + R"("input":"a sea"})",
       {"200 OK", R"("embedding":[)", R"("index":0)"}},
  };
}

std::vector<Recorded> others() {
  return {
      {"A browser that asks for the icon",
       "GET /favicon.ico HTTP/1.1",
       "Accept: image/avif,*/*\r\nUser-Agent: Mozilla/5.0\r\nSec-Fetch-Site: same-origin\r\n",
       "",
       {"404 Not Found", R"("code":"not_found")"}},
      {"curl's form of a body",
       "POST /completion HTTP/1.1",
       "User-Agent: curl/7.88.1\r\nAccept: */*\r\n",
       R"({"prompt": "Once", "n_predict": 2})",
       {"200 OK", R"("content":)", R"("stop":true)", R"("timings":{)"}},
  };
}

// Sends the requests to a model whose template supports tools.
void expect_answers(const std::vector<Recorded>& requests) {
  ServerOptions options = story_options();
  options.name = "storyteller-int8";
  const CallingModel model({.name = "caller-recorded", .chat_template = kHermesTemplate}, options);
  const ServedModel& served = model.served();
  for (const Recorded& one : requests) {
    RawClient client(served.port());
    client.send(sent(one));
    const std::string reply = client.read_all();
    for (const std::string& part : one.parts) {
      EXPECT_NE(reply.find(part), std::string::npos) << one.client << ": " << part << "\n" << reply;
    }
  }
}

TEST(RecordedRequests, LangChainsAreAnswered) { expect_answers(of_langchain()); }
TEST(RecordedRequests, OpenWebUisAreAnswered) { expect_answers(of_open_webui()); }
TEST(RecordedRequests, OthersAreAnswered) { expect_answers(others()); }

}  // namespace
}  // namespace leq::test
