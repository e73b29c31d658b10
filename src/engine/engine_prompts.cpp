// Engine operations other than replies: saving and loading the texts of the prefix cache, and
// embedding texts.
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

namespace leq {
namespace {

// The most bytes of states inside a saved text; the state at its end is not counted.
constexpr std::size_t kMostStateBytes = std::size_t{1} << 30;

// The indices of `count` ascending positions, at most `most`: the last ones, and if there are
// several also the first, which is usually the end of a system message that other texts share.
std::vector<std::size_t> first_and_last(std::size_t count, std::size_t most) {
  std::vector<std::size_t> chosen;
  if (count > most && most > 1) chosen.push_back(0);
  const std::size_t rest = std::min(count, most) - chosen.size();
  for (std::size_t i = count - rest; i < count; ++i) chosen.push_back(i);
  return chosen;
}

}  // namespace

SavedPrefix Engine::save_prefix(std::span<const Token> tokens) {
  finish_ahead();
  const SequenceState state = session_.state();
  SavedPrefix prefix;
  if (!options_.reuse_prefixes) return prefix;
  const std::int32_t sequence = sequences_.idle();
  const PrefixCache::Match found = prefixes_.find(tokens, false);
  state.adopt(sequence, found.prefix());
  prefix.tokens.assign(tokens.begin(), tokens.begin() + found.tokens);
  prefix.kv = state.save(sequence);
  state.drop(sequence);
  const FixedStates* const fixed = state.fixed();
  if (fixed == nullptr) return prefix;
  std::vector<PrefixCache::KeptState> kept = prefixes_.states(prefix.tokens);
  if (!kept.empty() && kept.back().position == found.tokens) kept.pop_back();
  for (const std::size_t i : first_and_last(kept.size(), kMostStateBytes / fixed->whole_bytes())) {
    SavedState& saved = prefix.states.emplace_back();
    saved.position = kept[i].position;
    saved.bytes.resize(fixed->whole_bytes());
    fixed->read(kept[i].state, saved.bytes);
  }
  return prefix;
}

bool Engine::load_prefix(const SavedPrefix& prefix, std::string_view source) {
  finish_ahead();
  if (!options_.reuse_prefixes) return false;
  const SequenceState state = session_.state();
  const KvCache& cache = state.pages();
  const auto length = std::ssize(prefix.tokens);
  for (const Token id : prefix.tokens) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocabulary_, source, ": token ", id,
            ", expected ids below ", vocabulary_, "; the file is damaged, remove it");
  }
  for (const SavedState& saved : prefix.states) state.check_state(saved.bytes, source);
  const std::int32_t sequence = sequences_.idle();
  const std::int64_t needed = cache.pages_to_begin(length);
  prefixes_.make_free(needed + std::ssize(prefix.states));  // each state has a page of its own
  if (length > cache.shape().positions || cache.free_pages() < needed) return false;
  prefixes_.make_states_free(1);
  state.load(sequence, prefix.kv, source);
  const std::int64_t found = state.length(sequence);
  const bool agrees = found == length;
  if (agrees) {
    prefixes_.keep(sequence, prefix.tokens, true);
    load_states(prefix, sequence);
  }
  state.drop(sequence);
  require(agrees, source, ": ", length, " tokens with keys and values of ", found,
          "; the file is damaged, remove it");
  return true;
}

// Keeps the states inside a loaded prefix, from the last one to the first, as its sequence is
// shortened to their positions. Leaves out those for which there is too little memory.
void Engine::load_states(const SavedPrefix& prefix, std::int32_t sequence) {
  const SequenceState state = session_.state();
  const std::int64_t most = session_.limits().kept_states - 1;  // beside the state at the end
  if (prefix.states.empty() || most <= 0) return;
  auto chosen = first_and_last(prefix.states.size(), static_cast<std::size_t>(most));
  std::ranges::reverse(chosen);
  for (const std::size_t i : chosen) {
    const SavedState& saved = prefix.states[i];
    const auto before = std::span(prefix.tokens).first(static_cast<std::size_t>(saved.position));
    const auto known = prefixes_.states(before);
    if (!known.empty() && known.back().position == saved.position) continue;
    prefixes_.make_states_free(1);
    if (!state.shorten(sequence, saved.position, saved.bytes)) continue;
    prefixes_.keep(sequence, before, true);
  }
  prefixes_.find(prefix.tokens, true);  // the end was used last
}

std::vector<float> Engine::embed(std::span<const Token> tokens) {
  EmbeddedText text = {.tokens = {tokens.begin(), tokens.end()}};
  while (!text.done()) embed_chunk(text);
  return text.mean;
}

void Engine::embed_chunk(EmbeddedText& text) {
  finish_ahead();
  embedder_.advance(text, running() > 0);
}

}  // namespace leq
