// Endpoints for embeddings of texts, and for ranking documents by similarity to a query.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/base64.h"
#include "server/model_api.h"

namespace leq {
namespace {

constexpr std::size_t kMostInputs = 2048;

// Base64 of little-endian f32 numbers, the "base64" encoding of the OpenAI API.
std::string base64_numbers(std::span<const float> numbers) {
  static_assert(std::endian::native == std::endian::little);
  return base64_of({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
}

// Scales to a length of 1; zeros stay zeros.
void normalize(std::vector<float>& numbers) {
  double sum = 0;
  for (const float x : numbers) sum += double{x} * double{x};
  if (sum == 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& x : numbers) x = static_cast<float>(double{x} * scale);
}

double product(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

// The text of a document, which is a string or {"text": ...}.
std::string document_text(JsonNode node) {
  const JsonNode text = node.is_object() ? node.find("text") : node;
  if (!text || !text.is_string()) field_error("documents", "texts, or objects with a text", node);
  return text.text();
}

}  // namespace

std::vector<float> ModelApi::embed(const std::vector<Token>& tokens,
                                   std::string_view member) const {
  if (tokens.empty()) field_error(member, "a text of at least one token");
  if (std::ssize(tokens) > engine_.context()) {
    throw ApiError(400,
                   std::string(member) + ": a text of " + std::to_string(tokens.size()) +
                       " tokens in a context of " + std::to_string(engine_.context()),
                   "context_length_exceeded");
  }
  EmbeddedText text = {.tokens = tokens};
  engine_.with_idle_sequence([&](Engine& engine) { engine.embed_chunk(text); });
  while (!text.done()) {
    engine_.between_steps([&](Engine& engine) { engine.embed_chunk(text); });
  }
  return std::move(text.mean);
}

// Embeddings are cut to the first `dimensions` numbers, if given, and scaled to a length of 1.
void ModelApi::embeddings(HttpExchange& exchange, JsonNode body) const {
  const std::string format = text_field(body, "encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    field_error("encoding_format", "float or base64", body.find("encoding_format"));
  }
  const std::int64_t width = facts_.config().width;
  const auto dimensions =
      static_cast<std::size_t>(whole_field(body, "dimensions", 1, width).value_or(width));
  const auto prompts = read_prompts(body, "input", model_, true, kMostInputs);
  Json data = Json::array();
  std::size_t tokens = 0;
  for (const std::vector<Token>& prompt : prompts) {
    std::vector<float> numbers = embed(prompt, "input");
    numbers.resize(dimensions);
    normalize(numbers);
    tokens += prompt.size();
    Json embedding = format == "base64" ? Json(base64_numbers(numbers)) : Json(numbers);
    data.push_back(
        {{"object", "embedding"}, {"index", data.size()}, {"embedding", std::move(embedding)}});
    if (!exchange.client_is_there()) return;
  }
  send_json(exchange, {{"object", "list"},
                       {"data", std::move(data)},
                       {"model", model_.name},
                       {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

// Ranks by the cosine between the embeddings of query and document.
void ModelApi::rerank(HttpExchange& exchange, JsonNode body) const {
  const JsonNode documents = given_field(body, "documents");
  const auto query = text_field(body, "query");
  if (!query) field_error("query", "a text", JsonNode());
  if (!documents || !documents.is_array() || documents.size() == 0 ||
      documents.size() > kMostInputs) {
    field_error("documents", "a list of 1 to " + std::to_string(kMostInputs) + " texts");
  }
  const auto most = whole_field(body, "top_n", 1, 1 << 30).value_or(1 << 30);
  const bool with_texts = flag_field(body, "return_documents");
  std::int64_t tokens = 0;
  const auto vector_of = [&](const std::string& text, std::string_view member) {
    const auto ids = model_.tokenizer.encode(text, {.add_bos = model_.tokenizer.add_bos()});
    tokens += std::ssize(ids);
    std::vector<float> numbers = embed(ids, member);
    normalize(numbers);
    return numbers;
  };
  const std::vector<float> wanted = vector_of(*query, "query");
  std::vector<std::string> texts;
  std::vector<double> scores;
  for (const JsonNode one : documents) {
    texts.push_back(document_text(one));
    scores.push_back(product(wanted, vector_of(texts.back(), "documents")));
    if (!exchange.client_is_there()) return;
  }
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  Json results = Json::array();
  for (const std::size_t i : order) {
    if (std::ssize(results) >= most) break;
    Json result = {{"index", i}, {"relevance_score", scores[i]}};
    if (with_texts) result["document"] = Json::object({{"text", texts[i]}});
    results.push_back(std::move(result));
  }
  send_json(exchange, {{"object", "list"},
                       {"model", model_.name},
                       {"results", std::move(results)},
                       {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

}  // namespace leq
