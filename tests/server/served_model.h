// A small trained model behind a server on a free port, and the tests' clients.
#pragma once

#include <httplib.h>

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "models_fixture.h"
#include "ranks_fixture.h"
#include "runtime/make_backend.h"
#include "sampling/settings.h"
#include "server/server.h"

namespace leq::test {

inline const Model& story_model() {
  static const Model model(quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", "int8"),
                           {});
  return model;
}

inline RunLimits story_limits(int sequences, const Model& model = story_model(),
                              KvType kv = kUsualKv) {
  RunLimits limits;
  limits.key_type = limits.value_type = kv;
  limits.sequences = sequences;
  limits.context = 1024 * sequences;
  limits.sequence_context = 1024;
  limits.output_tokens = sequences + kMaxDraftTokens;
  return resolve_limits(limits, model.config());
}

inline SamplingSettings story_sampling() {
  return choose_sampling({}, story_model().generation().sampling).settings;
}

inline ServerOptions story_options() {
  ServerOptions options;
  options.http.port = 0;
  allow_own_names(options.access, "127.0.0.1");
  options.sampling = story_sampling();
  return options;
}

class ServedModel {
 public:
  explicit ServedModel(int sequences = 4, const ServerOptions& options = story_options(),
                       const Model& model = story_model(), int ranks = 1, KvType kv = kUsualKv)
      : backend_(make_backend({.device = "cpu", .threads = 2})),
        followers_(model, follower_backends(ranks, 1, chosen_isa()),
                   story_limits(sequences, model, kv), {.threads = ranks + 1}),
        session_(model, *backend_, story_limits(sequences, model, kv), followers_.leader()),
        server_(std::make_unique<Server>(model, session_, options)) {}

  Server& server() { return *server_; }
  int port() const { return server_->port(); }

  httplib::Client client() const {
    httplib::Client client("127.0.0.1", port());
    client.set_read_timeout(60);
    client.set_tcp_nodelay(true);  // it sends the body separately, which would be delayed
    return client;
  }
  // The reply to a POST: its status, and its JSON (null if it is none).
  struct Answer {
    int status = 0;
    Json json;
    std::string body;
    httplib::Headers headers;
  };
  Answer post(const std::string& path, const std::string& body,
              const httplib::Headers& headers = {}) const {
    auto one = client();
    return answer_of(one.Post(path, headers, body, "application/json"));
  }
  Answer post(const std::string& path, const Json& body) const { return post(path, body.dump()); }
  Answer post(const std::string& path, const char* body) const {
    return post(path, std::string(body));
  }
  Answer get(const std::string& path, const httplib::Headers& headers = {}) const {
    auto one = client();
    return answer_of(one.Get(path, headers));
  }

 private:
  static Answer answer_of(const httplib::Result& result) {
    Answer answer;
    if (!result) {
      answer.body = "no answer: " + httplib::to_string(result.error());
      return answer;
    }
    answer.status = result->status;
    answer.body = result->body;
    answer.headers = result->headers;
    if (result->get_header_value("Content-Type") == "application/json" && !answer.body.empty()) {
      answer.json = parse_json(answer.body, "the answer");
    }
    return answer;
  }

  std::unique_ptr<Backend> backend_;
  ThreadFollowers followers_;
  Session session_;
  std::unique_ptr<Server> server_;
};

// The JSON of all events of a stream except "[DONE]", which must be the last one.
inline std::vector<Json> events_of(const std::string& stream, bool* done) {
  std::vector<Json> events;
  *done = false;
  for (const std::string_view event : split(stream, "\n\n")) {
    if (event.empty()) continue;
    const bool is_data = event.starts_with("data: ");
    if (*done || !is_data) return {};
    *done = event == "data: [DONE]";
    if (!*done) events.push_back(parse_json(event.substr(6), "an event"));
  }
  return events;
}

}  // namespace leq::test
