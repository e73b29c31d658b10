// Endpoints for embeddings of texts, and for documents ranked by what they have to do with a query.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "base/text.h"
#include "server/dialects.h"
#include "server/model_api.h"

namespace leq {
namespace {

constexpr std::size_t kMaxInputs = 2048;

// Qwen3-Reranker's prompt. The model answers with one of two words.
constexpr std::string_view kJudge =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
constexpr std::string_view kAnswer = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";
constexpr std::array<std::string_view, 2> kAnswers = {"yes", "no"};

// Base64 of little-endian f32 numbers, the "base64" encoding of the OpenAI API.
std::string base64_numbers(std::span<const float> numbers) {
  static_assert(std::endian::native == std::endian::little);
  return base64_of({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
}

// Scales to a length of 1; zeros stay zeros.
void normalize(std::span<float> numbers) {
  double sum = 0;
  for (const float x : numbers) sum += double{x} * double{x};
  if (sum == 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& x : numbers) x = static_cast<float>(double{x} * scale);
}

double product(std::span<const float> a, std::span<const float> b) {
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

// One vector, or a list of them if there is one per token.
Json numbers_json(std::span<const float> numbers, std::size_t dimensions, bool per_token) {
  const auto row = [&](std::size_t first) {
    const auto part = numbers.subspan(first, dimensions);
    return Json(std::vector<float>(part.begin(), part.end()));
  };
  if (!per_token) return row(0);
  Json rows = Json::array();
  for (std::size_t first = 0; first < numbers.size(); first += dimensions) {
    rows.push_back(row(first));
  }
  return rows;
}

std::vector<Token> answer_tokens(const Tokenizer& tokenizer) {
  std::vector<Token> ids;
  for (const std::string_view word : kAnswers) {
    const auto found = tokenizer.encode(word, {});
    if (found.size() == 1) ids.push_back(found.front());
  }
  if (ids.size() != kAnswers.size()) {
    throw ApiError(501, "the model has no tokens yes and no: only Qwen3-Reranker judges documents",
                   "not_supported");
  }
  return ids;
}

}  // namespace

Pooling ModelApi::pooling() const { return model_.embedding.pooling.value_or(Pooling::mean); }

void ModelApi::send_with_warning(HttpExchange& exchange, Json answer) const {
  std::vector<std::string> notes;
  if (!model_.embedding.pooling) {
    notes.emplace_back(
        "the model's file does not say how its embeddings are pooled: mean is used, which is wrong "
        "for many models; the server's option pooling sets it");
    if (answer.is_object()) answer["warnings"] = Json(notes);
  }
  HttpReply reply;
  add_warning_header(reply, notes);
  reply.body = answer.dump_any();
  exchange.reply(reply);
}

std::vector<float> ModelApi::values_of(EmbeddedText text, std::string_view member) const {
  if (text.tokens.empty()) field_error(member, "a text of at least one token");
  if (std::ssize(text.tokens) > engine_.context()) {
    throw ApiError(400,
                   std::string(member) + ": a text of " + std::to_string(text.tokens.size()) +
                       " tokens in a context of " + std::to_string(engine_.context()),
                   "context_length_exceeded");
  }
  feed_text(engine_, text);
  return std::move(text.values);
}

std::vector<float> ModelApi::embed(const std::vector<Token>& tokens,
                                   std::string_view member) const {
  if (pooling() == Pooling::rank) {
    throw ApiError(501, "the model ranks documents: POST /v1/rerank", "not_supported");
  }
  return values_of({.tokens = tokens, .pooling = pooling()}, member);
}

// Embeddings of the texts in `member`, cut to the first "dimensions" numbers, if given, and scaled
// to a length of 1 if the model's are; nullopt if the client has left.
std::optional<ModelApi::Embeddings> ModelApi::embeddings_of(HttpExchange& exchange, JsonNode body,
                                                            std::string_view member) const {
  const auto width = static_cast<std::size_t>(hosted_.model().config().width);
  const bool per_token = pooling() == Pooling::none;
  Embeddings all;
  all.dimensions =
      static_cast<std::size_t>(whole_field(body, "dimensions", 1, static_cast<std::int64_t>(width))
                                   .value_or(static_cast<std::int64_t>(width)));
  std::string before;
  if (const auto name = text_field(body, "prompt_name")) {
    const auto& prompts = model_.embedding.prompts;
    const auto found = prompts.find(*name);
    std::vector<std::string> names;
    for (const auto& one : prompts) names.push_back(one.first);
    if (found == prompts.end()) {
      field_error("prompt_name",
                  names.empty() ? "none: the model has no prompts" : "one of " + join(names));
    }
    before = found->second;
  }
  for (const std::vector<Token>& prompt :
       read_prompts(body, member, model_, kMaxInputs, model_.embedding.end, before)) {
    const std::vector<float> whole = embed(prompt, member);
    std::vector<float>& kept = all.rows.emplace_back();
    for (std::size_t row = 0; row < whole.size(); row += width) {
      kept.insert(kept.end(), whole.begin() + static_cast<std::ptrdiff_t>(row),
                  whole.begin() + static_cast<std::ptrdiff_t>(row + all.dimensions));
      if (!per_token && model_.embedding.normalize) normalize(kept);
    }
    all.tokens += prompt.size();
    exchange.facts.prompt_tokens = static_cast<std::int64_t>(all.tokens);
    if (!exchange.client_is_there()) return std::nullopt;
  }
  return all;
}

void ModelApi::embeddings(HttpExchange& exchange, JsonNode body) const {
  const std::string format = text_field(body, "encoding_format").value_or("float");
  const bool per_token = pooling() == Pooling::none;
  if (format != "float" && (format != "base64" || per_token)) {
    field_error("encoding_format", per_token ? "float" : "float or base64",
                body.find("encoding_format"));
  }
  const auto all = embeddings_of(exchange, body, "input");
  if (!all) return;
  Json data = Json::array();
  for (const std::vector<float>& numbers : all->rows) {
    Json embedding = format == "base64" ? Json(base64_numbers(numbers))
                                        : numbers_json(numbers, all->dimensions, per_token);
    data.push_back(
        {{"object", "embedding"}, {"index", data.size()}, {"embedding", std::move(embedding)}});
  }
  Json answer = {{"object", "list"},
                 {"data", std::move(data)},
                 {"model", model_.name},
                 {"usage", {{"prompt_tokens", all->tokens}, {"total_tokens", all->tokens}}}};
  send_with_warning(exchange, std::move(answer));
}

void ModelApi::native_embeddings(HttpExchange& exchange, JsonNode body) const {
  const auto all =
      embeddings_of(exchange, body, given_field(body, "content") ? "content" : "input");
  if (!all) return;
  Json list = Json::array();
  for (const std::vector<float>& numbers : all->rows) {
    Json embedding = numbers_json(numbers, all->dimensions, pooling() == Pooling::none);
    list.push_back({{"index", list.size()}, {"embedding", Json::array({std::move(embedding)})}});
  }
  send_with_warning(exchange, std::move(list));
}

// Ollama's /api/embed takes "input", a text or a list, and its older /api/embeddings one "prompt".
void ModelApi::ollama_embed(HttpExchange& exchange, JsonNode body) const {
  const bool is_old = !given_field(body, "input");
  const auto all = embeddings_of(exchange, body, is_old ? "prompt" : "input");
  if (!all) return;
  Json rows = Json::array();
  for (const std::vector<float>& numbers : all->rows) {
    rows.push_back(numbers_json(numbers, all->dimensions, pooling() == Pooling::none));
  }
  if (is_old) return send_with_warning(exchange, Json::object({{"embedding", rows[0]}}));
  Json answer = {
      {"model", model_.name}, {"embeddings", std::move(rows)}, {"prompt_eval_count", all->tokens}};
  send_with_warning(exchange, std::move(answer));
}

// The cosines between the embeddings of query and documents.
ModelApi::Scores ModelApi::cosines(HttpExchange& exchange, const std::string& query,
                                   const std::vector<std::string>& documents) const {
  if (pooling() == Pooling::none) {
    throw ApiError(501, "the model's embeddings are one vector per token: documents have no cosine",
                   "not_supported");
  }
  Scores scores;
  const auto vector_of = [&](const std::string& text, std::string_view member) {
    const auto ids = encode_text(text, model_, model_.embedding.end);
    scores.tokens += ids.size();
    std::vector<float> numbers = embed(ids, member);
    normalize(numbers);
    return numbers;
  };
  const std::vector<float> wanted = vector_of(query, "query");
  for (const std::string& document : documents) {
    if (!exchange.client_is_there()) break;
    scores.values.push_back(product(wanted, vector_of(document, "documents")));
  }
  return scores;
}

// The probability of yes among yes and no, after Qwen3-Reranker's prompt. Special tokens in query
// and document are plain text.
ModelApi::Scores ModelApi::judgements(HttpExchange& exchange, const std::string& query,
                                      const std::vector<std::string>& documents,
                                      const std::string& instruction) const {
  const std::vector<Token> answers = answer_tokens(model_.tokenizer);
  Scores scores;
  for (const std::string& document : documents) {
    if (!exchange.client_is_there()) break;
    const std::vector<TextPart> parts = {
        {std::string(kJudge), true},
        {"<Instruct>: " + instruction + "\n<Query>: " + query + "\n<Document>: " + document, false},
        {std::string(kAnswer), true}};
    const auto ids = model_.tokenizer.encode_parts(parts);
    scores.tokens += ids.size();
    const std::vector<float> logits =
        values_of({.tokens = ids, .pooling = Pooling::rank, .answers = answers}, "documents");
    scores.values.push_back(1 / (1 + std::exp(double{logits[1]} - double{logits[0]})));
  }
  return scores;
}

// In the form of Jina and Cohere.
void ModelApi::rerank(HttpExchange& exchange, JsonNode body) const {
  const JsonNode documents = given_field(body, "documents");
  const auto query = text_field(body, "query");
  if (!query) field_error("query", "a text", JsonNode());
  if (!documents || !documents.is_array() || documents.size() == 0 ||
      documents.size() > kMaxInputs) {
    field_error("documents", "a list of 1 to " + std::to_string(kMaxInputs) + " texts");
  }
  const auto most = whole_field(body, "top_n", 1, 1 << 30).value_or(1 << 30);
  const bool with_texts = flag_field(body, "return_documents");
  const auto instruction = text_field(body, "instruction").value_or(std::string(kInstruction));
  std::vector<std::string> texts;
  for (const JsonNode one : documents) texts.push_back(document_text(one));
  const Scores scores = pooling() == Pooling::rank
                            ? judgements(exchange, *query, texts, instruction)
                            : cosines(exchange, *query, texts);
  if (scores.values.size() < texts.size()) return;  // the client has left
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return scores.values[a] > scores.values[b]; });
  Json results = Json::array();
  for (const std::size_t i : order) {
    if (std::ssize(results) >= most) break;
    Json result = {{"index", i}, {"relevance_score", scores.values[i]}};
    if (with_texts) result["document"] = Json::object({{"text", texts[i]}});
    results.push_back(std::move(result));
  }
  Json answer = {{"object", "list"},
                 {"model", model_.name},
                 {"results", std::move(results)},
                 {"usage", {{"prompt_tokens", scores.tokens}, {"total_tokens", scores.tokens}}}};
  send_with_warning(exchange, std::move(answer));
}

}  // namespace leq
