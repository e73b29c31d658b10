// A text as one vector: the engine's own forward passes, on a sequence that nobody has in use.
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

namespace leq {

std::vector<float> Engine::embed(std::span<const Token> tokens) {
  EmbeddedText text = {.tokens = {tokens.begin(), tokens.end()}};
  while (!text.done()) embed_chunk(text);
  return text.mean;
}

void Engine::embed_chunk(EmbeddedText& text) {
  if (text.sequence < 0) {
    check_prompt(text.tokens, vocabulary_, context() + 1);  // no room for a reply is needed
    require(
        session_.transformer().online().empty(), ErrorKind::bad_input,
        "embeddings: this model's activations remember earlier steps, which a text must not change;"
        " quantize it with ",
        Setting{"act"}, " row");
    text.sequence = idle_sequence();
    taken_[static_cast<std::size_t>(text.sequence)] = true;
  }
  const auto leave = [&] {
    session_.cache().clear(text.sequence);
    taken_[static_cast<std::size_t>(text.sequence)] = false;
    text.sequence = -1;
  };
  try {
    feed_chunk(text);
  } catch (...) {
    leave();
    throw;
  }
  if (text.fed < text.tokens.size()) return;
  leave();
  for (const double sum : text.sums) {
    text.mean.push_back(static_cast<float>(sum / static_cast<double>(text.tokens.size())));
  }
}

void Engine::feed_chunk(EmbeddedText& text) {
  KvCache& cache = session_.cache();
  const RunLimits& limits = session_.limits();
  const auto width = static_cast<std::size_t>(session_.transformer().config().width);
  const auto most = static_cast<std::size_t>(std::min(limits.batch_tokens, limits.output_tokens));
  const auto rest = std::span<const Token>(text.tokens).subspan(text.fed);
  const auto part = rest.first(std::min(most, rest.size()));
  prefixes_.make_free(cache.pages_to_append(text.sequence, std::ssize(part)));
  batch_.clear();
  batch_.add(text.sequence, part.data(), std::ssize(part), Batch::Want::all);
  const Rows& hidden = session_.transformer().hidden(batch_, cache);
  std::vector<float> rows(part.size() * width);
  session_.transformer().backend().download(hidden, std::ssize(part), rows);
  text.sums.resize(width, 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) text.sums[i % width] += double{rows[i]};
  text.fed += part.size();
}

}  // namespace leq
