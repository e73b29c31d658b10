// Endpoints of one model: replies, tokenization, slots; and embeddings (embeddings.cpp).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/model_pool.h"
#include "server/request.h"

namespace leq {

class ModelApi {
 public:
  // `hosted` and `model`, its properties with the defaults for this request, must outlive it.
  ModelApi(HostedModel& hosted, const ApiModel& model, const ReplyTimes& times)
      : model_(model), engine_(hosted.engine()), hosted_(hosted), times_(times) {}
  explicit ModelApi(HostedModel& hosted) : ModelApi(hosted, hosted.api(), {}) {}

  // Each handler answers one request; `body`: its JSON object, or nothing if the endpoint takes
  // none. Handlers throw Error or Busy only if nothing has been sent yet.
  void props(HttpExchange& exchange, JsonNode body) const;
  void slot_action(HttpExchange& exchange, JsonNode body) const;
  template <CallStyle style>
  void generate(HttpExchange& exchange, JsonNode body) const {
    generate(exchange, body, style);
  }
  // The number of tokens of a chat's prompt.
  template <CallStyle style>
  void count_tokens(HttpExchange& exchange, JsonNode body) const {
    count_tokens(exchange, body, style);
  }
  void embeddings(HttpExchange& exchange, JsonNode body) const;
  void native_embeddings(HttpExchange& exchange, JsonNode body) const;  // llama-server's
  void rerank(HttpExchange& exchange, JsonNode body) const;
  void tokenize(HttpExchange& exchange, JsonNode body) const;
  void detokenize(HttpExchange& exchange, JsonNode body) const;
  void apply_template(HttpExchange& exchange, JsonNode body) const;

  // Ollama's API.
  void ollama_embed(HttpExchange& exchange, JsonNode body) const;
  void ollama_show(HttpExchange& exchange, JsonNode body) const;

  // JSON for the lists of models and of slots.
  Json facts() const;
  Json ollama_details() const;
  std::vector<Json> slots() const;

 private:
  void generate(HttpExchange& exchange, JsonNode body, CallStyle style) const;
  void count_tokens(HttpExchange& exchange, JsonNode body, CallStyle style) const;
  Json save_slot(std::size_t slot, const std::string& name) const;
  Json restore_slot(std::size_t slot, const std::string& name) const;
  Json erase_slot(std::size_t slot) const;
  Pooling pooling() const;
  // Sends a reply, with a warning if the file does not say how embeddings are pooled.
  void send_with_warning(HttpExchange& exchange, Json answer) const;
  std::vector<float> values_of(EmbeddedText text, std::string_view member) const;
  std::vector<float> embed(const std::vector<Token>& tokens, std::string_view member) const;
  struct Embeddings {
    std::vector<std::vector<float>> rows;  // [dimensions], or [tokens, dimensions]
    std::size_t dimensions = 0, tokens = 0;
  };
  std::optional<Embeddings> embeddings_of(HttpExchange& exchange, JsonNode body,
                                          std::string_view member) const;
  struct Scores {
    std::vector<double> values;  // [documents], fewer if the client has left
    std::size_t tokens = 0;
  };
  Scores cosines(HttpExchange& exchange, const std::string& query,
                 const std::vector<std::string>& documents) const;
  Scores judgements(HttpExchange& exchange, const std::string& query,
                    const std::vector<std::string>& documents,
                    const std::string& instruction) const;

  const ApiModel& model_;
  EngineThread& engine_;
  HostedModel& hosted_;
  ReplyTimes times_;
};

// Sends a reply whose body is `json`.
void send_json(HttpExchange& exchange, const Json& json);

}  // namespace leq
