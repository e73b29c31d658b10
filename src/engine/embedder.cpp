#include "engine/embedder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "generate/reply.h"

namespace leq {

Embedder::Embedder(Session& session, PrefixCache& prefixes, SequencePool& sequences)
    : session_(session), prefixes_(prefixes), sequences_(sequences), texts_(sequences.size(), 0) {}

void Embedder::advance(EmbeddedText& text, bool others_run) {
  const bool has_sequence =
      text.sequence >= 0 && texts_[static_cast<std::size_t>(text.sequence)] == text.id;
  if (!has_sequence && text.id != 0 && !sequences_.has_idle()) return;  // was evicted and waits
  if (!has_sequence) begin(text);
  try {
    feed_chunk(text, others_run);
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

void Embedder::begin(EmbeddedText& text) {
  Transformer& transformer = session_.transformer();
  check_prompt(text.tokens, static_cast<std::size_t>(transformer.config().vocab),
               transformer.limits().context + 1);  // reserves no position for a reply
  require(
      transformer.online().empty(), ErrorKind::bad_input,
      "embeddings: this model's activations remember earlier steps, which a text must not change;"
      " quantize it with ",
      Setting{"act"}, " row");
  text.sequence = sequences_.take();
  text.id = ++last_text_;
  text.fed = 0;
  text.sums.clear();
  text.logprobs.clear();
  texts_[static_cast<std::size_t>(text.sequence)] = text.id;
}

void Embedder::leave(EmbeddedText& text) {
  const std::int32_t sequence = std::exchange(text.sequence, -1);
  session_.state().drop(sequence);
  sequences_.give_back(sequence);
  texts_[static_cast<std::size_t>(sequence)] = 0;
}

bool Embedder::give_up() {
  bool any = false;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (std::exchange(texts_[i], 0) == 0) continue;
    const auto sequence = static_cast<std::int32_t>(i);
    session_.state().drop(sequence);
    sequences_.give_back(sequence);
    any = true;
  }
  return any;
}

void Embedder::feed_chunk(EmbeddedText& text, bool others_run) {
  const SequenceState state = session_.state();
  const RunLimits& limits = session_.limits();
  const auto most = static_cast<std::size_t>(std::min(limits.batch_tokens, limits.output_tokens));
  const auto rest = std::span<const Token>(text.tokens).subspan(text.fed);
  const auto part = rest.first(std::min(most, rest.size()));
  const std::int64_t pages = state.pages().pages_to_append(text.sequence, std::ssize(part));
  prefixes_.make_free(pages);
  prefixes_.make_states_free(1);
  if (state.pages().free_pages() < pages && others_run) return;  // replies end and free pages
  batch_.clear();
  batch_.add(text.sequence, part.data(), std::ssize(part), Batch::Want::all);
  if (text.top) {
    add_logprobs(text, part);
  } else {
    add_hidden(text, part);
  }
  text.fed += part.size();
}

void Embedder::add_hidden(EmbeddedText& text, std::span<const Token> part) {
  const auto width = static_cast<std::size_t>(session_.transformer().config().width);
  const Rows& hidden = session_.transformer().hidden(batch_, session_.state());
  std::vector<float> rows(part.size() * width);
  session_.transformer().backend().download(hidden, std::ssize(part), rows);
  text.sums.resize(width, 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) text.sums[i % width] += double{rows[i]};
}

// Row i of the logits holds the probabilities of token i + 1.
void Embedder::add_logprobs(EmbeddedText& text, std::span<const Token> part) {
  const auto vocabulary = static_cast<std::size_t>(session_.transformer().config().vocab);
  const Rows& logits = session_.transformer().forward(batch_, session_.state());
  std::vector<float> rows(part.size() * vocabulary);
  session_.transformer().backend().download(logits, std::ssize(part), rows);
  for (std::size_t i = 0; i < part.size() && text.fed + i + 1 < text.tokens.size(); ++i) {
    const auto row = std::span<const float>(rows).subspan(i * vocabulary, vocabulary);
    text.logprobs.push_back(token_logprobs(row, text.tokens[text.fed + i + 1], *text.top));
  }
}

}  // namespace leq
