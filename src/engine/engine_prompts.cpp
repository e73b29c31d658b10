// Engine operations other than replies: saving and loading the texts of the prefix cache as prompt
// files, and embedding texts.
#include "base/error.h"
#include "engine/engine.h"

namespace leq {

SavedPrompt Engine::save_prompt(std::span<const Token> tokens) {
  land_ahead();
  const SequenceState state = session_.state();
  SavedPrompt prompt;
  if (!options_.reuse_prefixes) return prompt;
  const std::int32_t sequence = sequences_.idle();
  const PrefixCache::Found found = prefixes_.find(tokens, false);
  state.adopt(sequence, found.prefix());
  prompt.tokens.assign(tokens.begin(), tokens.begin() + found.tokens);
  prompt.kv = state.save(sequence);
  state.drop(sequence);
  return prompt;
}

bool Engine::load_prompt(const SavedPrompt& prompt, std::string_view source) {
  land_ahead();
  if (!options_.reuse_prefixes) return false;
  const SequenceState state = session_.state();
  const KvCache& cache = state.pages();
  const auto length = std::ssize(prompt.tokens);
  for (const Token id : prompt.tokens) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocabulary_, source, ": token ", id,
            ", expected ids below ", vocabulary_, "; the file is damaged, remove it");
  }
  const std::int32_t sequence = sequences_.idle();
  const std::int64_t needed = cache.pages_to_begin(length);
  prefixes_.make_free(needed);
  if (length > cache.shape().positions || cache.free_pages() < needed) return false;
  state.load(sequence, prompt.kv, source);
  const bool agrees = state.length(sequence) == length;
  if (agrees) prefixes_.keep(sequence, prompt.tokens, true);
  const std::int64_t found = state.length(sequence);
  state.drop(sequence);
  require(agrees, source, ": ", length, " tokens with keys and values of ", found,
          "; the file is damaged, remove it");
  return true;
}

std::vector<float> Engine::embed(std::span<const Token> tokens) {
  EmbeddedText text = {.tokens = {tokens.begin(), tokens.end()}};
  while (!text.done()) embed_chunk(text);
  return text.mean;
}

void Engine::embed_chunk(EmbeddedText& text) {
  land_ahead();
  embedder_.advance(text, running() > 0);
}

}  // namespace leq
