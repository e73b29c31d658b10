// A text as one vector: the engine's own forward passes, on a sequence that nobody has in use.
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

namespace leq {

std::vector<float> Engine::embed(std::span<const Token> tokens) {
  const auto width = static_cast<std::size_t>(session_.transformer().config().width);
  check_prompt(tokens, static_cast<std::size_t>(session_.transformer().config().vocab),
               context() + 1);  // no room for a reply is needed
  require(
      session_.transformer().online().empty(), ErrorKind::bad_input,
      "embeddings: this model's activations remember earlier steps, which a text must not change;"
      " quantize it with ",
      Setting{"act"}, " row");
  KvCache& cache = session_.cache();
  const std::int32_t sequence = idle_sequence();
  prefixes_.make_free(cache.most_pages(std::ssize(tokens)));
  const auto chunk = static_cast<std::size_t>(
      std::min(session_.limits().batch_tokens, session_.limits().output_tokens));
  std::vector<double> sums(width, 0.0);
  std::vector<float> rows;
  try {
    for (std::size_t first = 0; first < tokens.size(); first += chunk) {
      const auto part = tokens.subspan(first, std::min(chunk, tokens.size() - first));
      batch_.clear();
      batch_.add(sequence, part.data(), std::ssize(part), Batch::Want::all);
      const Rows& hidden = session_.transformer().hidden(batch_, cache);
      rows.resize(part.size() * width);
      session_.transformer().backend().download(hidden, std::ssize(part), rows);
      for (std::size_t i = 0; i < rows.size(); ++i) sums[i % width] += double{rows[i]};
    }
  } catch (...) {
    cache.clear(sequence);
    throw;
  }
  cache.clear(sequence);
  std::vector<float> mean;
  for (const double sum : sums) {
    mean.push_back(static_cast<float>(sum / static_cast<double>(tokens.size())));
  }
  return mean;
}

}  // namespace leq
