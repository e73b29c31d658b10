// A text as one vector, or the probabilities of its tokens: the engine's own forward passes, on a
// sequence that nobody has in use.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"

namespace leq {

std::vector<float> Engine::embed(std::span<const Token> tokens) {
  EmbeddedText text = {.tokens = {tokens.begin(), tokens.end()}};
  while (!text.done()) embed_chunk(text);
  return text.mean;
}

void Engine::embed_chunk(EmbeddedText& text) {
  land_ahead();
  const bool goes_on =
      text.sequence >= 0 && texts_[static_cast<std::size_t>(text.sequence)] == text.id;
  if (!goes_on && text.id != 0 && !has_idle_sequence()) return;  // it gave way, and waits
  if (!goes_on) begin(text);
  try {
    feed_chunk(text);
  } catch (...) {
    leave(text);
    throw;
  }
  if (text.fed < text.tokens.size()) return;
  leave(text);
  if (text.top) return;
  for (const double sum : text.sums) {
    text.mean.push_back(static_cast<float>(sum / static_cast<double>(text.tokens.size())));
  }
}

void Engine::begin(EmbeddedText& text) {
  check_prompt(text.tokens, vocabulary_, context() + 1);  // no room for a reply is needed
  require(
      session_.transformer().online().empty(), ErrorKind::bad_input,
      "embeddings: this model's activations remember earlier steps, which a text must not change;"
      " quantize it with ",
      Setting{"act"}, " row");
  text.sequence = idle_sequence();
  text.id = ++last_text_;
  text.fed = 0;
  text.sums.clear();
  text.logprobs.clear();
  taken_[static_cast<std::size_t>(text.sequence)] = true;
  texts_[static_cast<std::size_t>(text.sequence)] = text.id;
}

void Engine::leave(EmbeddedText& text) {
  const auto sequence = static_cast<std::size_t>(std::exchange(text.sequence, -1));
  session_.cache().clear(static_cast<std::int32_t>(sequence));
  taken_[sequence] = false;
  texts_[sequence] = 0;
}

// They begin again when they are fed next. False where there is none.
bool Engine::give_up_texts() {
  bool any = false;
  for (std::size_t sequence = 0; sequence < texts_.size(); ++sequence) {
    if (std::exchange(texts_[sequence], 0) == 0) continue;
    session_.cache().clear(static_cast<std::int32_t>(sequence));
    taken_[sequence] = false;
    any = true;
  }
  return any;
}

void Engine::feed_chunk(EmbeddedText& text) {
  KvCache& cache = session_.cache();
  const RunLimits& limits = session_.limits();
  const auto most = static_cast<std::size_t>(std::min(limits.batch_tokens, limits.output_tokens));
  const auto rest = std::span<const Token>(text.tokens).subspan(text.fed);
  const auto part = rest.first(std::min(most, rest.size()));
  const std::int64_t pages = cache.pages_to_append(text.sequence, std::ssize(part));
  prefixes_.make_free(pages);
  if (cache.free_pages() < pages && running() > 0) return;  // they end one day
  batch_.clear();
  batch_.add(text.sequence, part.data(), std::ssize(part), Batch::Want::all);
  if (text.top) {
    add_logprobs(text, part);
  } else {
    add_hidden(text, part);
  }
  text.fed += part.size();
}

void Engine::add_hidden(EmbeddedText& text, std::span<const Token> part) {
  const auto width = static_cast<std::size_t>(session_.transformer().config().width);
  const Rows& hidden = session_.transformer().hidden(batch_, session_.cache());
  std::vector<float> rows(part.size() * width);
  session_.transformer().backend().download(hidden, std::ssize(part), rows);
  text.sums.resize(width, 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) text.sums[i % width] += double{rows[i]};
}

// A row tells of the token after its own.
void Engine::add_logprobs(EmbeddedText& text, std::span<const Token> part) {
  const Rows& logits = session_.transformer().forward(batch_, session_.cache());
  std::vector<float> rows(part.size() * vocabulary_);
  session_.transformer().backend().download(logits, std::ssize(part), rows);
  for (std::size_t i = 0; i < part.size() && text.fed + i + 1 < text.tokens.size(); ++i) {
    const auto row = std::span<const float>(rows).subspan(i * vocabulary_, vocabulary_);
    text.logprobs.push_back(token_logprobs(row, text.tokens[text.fed + i + 1], *text.top));
  }
}

}  // namespace leq
