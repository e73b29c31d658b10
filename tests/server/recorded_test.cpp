// Requests with the headers and members that widely used clients send, byte for byte over a socket:
// what they rely on must be in the reply.
#include <gtest/gtest.h>

#include "server/raw_client.h"
#include "server/served_model.h"

namespace leq::test {
namespace {

struct Recorded {
  std::string client, request_line, headers, body;
  std::vector<std::string> parts;  // of the reply, head and body
};

std::string sent(const Recorded& recorded) {
  std::string text = recorded.request_line + "\r\nHost: localhost\r\n" + recorded.headers;
  if (!recorded.body.empty()) {
    text += "Content-Type: application/json\r\nContent-Length: " +
            std::to_string(recorded.body.size()) + "\r\n";
  }
  return text + "Connection: close\r\n\r\n" + recorded.body;
}

const std::string kPythonClient =
    "Accept: application/json\r\nAccept-Encoding: gzip, deflate\r\n"
    "User-Agent: OpenAI/Python 1.99.0\r\nX-Stainless-Lang: python\r\nX-Stainless-OS: Linux\r\n"
    "X-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\nX-Stainless-Retry-Count: 0\r\n"
    "Authorization: Bearer sk-none\r\n";
const std::string kWebUi =
    "Accept: */*\r\nAccept-Encoding: gzip, deflate, br\r\nUser-Agent: Python/3.11 "
    "aiohttp/3.11.11\r\n"
    "Authorization: Bearer sk-none\r\n";

std::vector<Recorded> recorded() {
  return {
      {"Open WebUI lists models",
       "GET /v1/models HTTP/1.1",
       kWebUi,
       "",
       {"200 OK", R"("object":"list")", R"("id":"storyteller-int8")"}},
      {"Open WebUI chats",
       "POST /v1/chat/completions HTTP/1.1",
       kWebUi,
       R"({"stream": true, "model": "storyteller-int8", "messages": [{"role": "system", "content": )"
       R"("Be brief."}, {"role": "user", "content": "Hi"}], "stream_options": {"include_usage": )"
       R"(true}, "max_tokens": 4, "temperature": 0.8})",
       {"200 OK", "Content-Type: text/event-stream", R"("delta":{"content":"","role":"assistant"})",
        R"("usage":{"completion_tokens":)", "data: [DONE]\n\n"}},
      {"Open WebUI asks for a title",
       "POST /v1/chat/completions HTTP/1.1",
       kWebUi,
       R"({"model": "storyteller-int8", "messages": [{"role": "user", "content": "### Task:\n)"
       R"(Generate a concise title."}], "stream": false, "max_completion_tokens": 5})",
       {"200 OK", R"("message":{"content":)", R"("finish_reason":"length")", R"("total_tokens":)"}},
      {"LangChain's ChatOpenAI",
       "POST /v1/chat/completions HTTP/1.1",
       kPythonClient,
       R"({"messages":[{"content":"You tell stories.","role":"system"},{"content":"Hello","role":)"
       R"("user"}],"model":"storyteller-int8","frequency_penalty":0.1,"max_completion_tokens":5,"n":1,)"
       R"("presence_penalty":0.1,"seed":7,"stop":["Human:"],"stream":false,"temperature":0.7,)"
       R"("top_p":0.9,"user":"someone","logit_bias":null,"logprobs":null})",
       {"200 OK", R"("object":"chat.completion")", R"("role":"assistant")",
        R"("prompt_tokens_details":{)"}},
      {"LangChain binds tools",
       "POST /v1/chat/completions HTTP/1.1",
       kPythonClient,
       R"({"messages":[{"content":"Hello","role":"user"}],"model":"storyteller-int8","max_tokens":4,)"
       R"("parallel_tool_calls":false,"stream":true,"tool_choice":"auto","tools":[{"type":"function",)"
       R"("function":{"name":"multiply","description":"Multiply.","parameters":{"properties":{"a":)"
       R"({"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"type":"object"}}}]})",
       {"200 OK", R"("object":"chat.completion.chunk")", "data: [DONE]\n\n"}},
      {"LangChain's OpenAIEmbeddings",
       "POST /v1/embeddings HTTP/1.1",
       kPythonClient,
       R"({"input":[[15,27,99],[4]],"model":"storyteller-int8","encoding_format":"base64"})",
       {"200 OK", R"("object":"embedding")", R"("index":1)", R"("usage":{)"}},
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

TEST(RecordedRequests, AreAnsweredAsTheirClientsExpect) {
  const ServedModel served;
  for (const Recorded& one : recorded()) {
    RawClient client(served.port());
    client.send(sent(one));
    const std::string reply = client.read_all();
    for (const std::string& part : one.parts) {
      EXPECT_NE(reply.find(part), std::string::npos) << one.client << ": " << part << "\n" << reply;
    }
  }
}

}  // namespace
}  // namespace leq::test
