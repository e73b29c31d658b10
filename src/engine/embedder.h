// A text as one vector, the mean over its tokens of the normed last hidden states, or the
// probabilities of its tokens: by the session's own forward passes on an idle sequence, a
// chunk at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/logprobs.h"
#include "engine/prefix_cache.h"
#include "engine/sequence_pool.h"
#include "model/session.h"

namespace leq {

// The embedder's own but for `tokens` and `top`, and `mean` or `logprobs` in the end.
struct EmbeddedText {
  std::vector<Token> tokens;
  // Where it is given: how probable each token was after those before it, with so many others.
  std::optional<int> top = {};
  std::vector<float> mean = {};              // [W]
  std::vector<TokenLogprobs> logprobs = {};  // [tokens - 1], from the second token on
  std::vector<double> sums = {};
  std::size_t fed = 0;
  std::int32_t sequence = -1;  // -1: none yet, or no more
  std::uint64_t id = 0;

  bool done() const { return !tokens.empty() && sequence < 0 && fed == tokens.size(); }
};

class Embedder {
 public:
  // All of them must outlive it.
  Embedder(Session& session, PrefixCache& prefixes, SequencePool& sequences);

  // Feeds one chunk. The text has a sequence until it is done, or until an error is thrown. Where
  // pages run out it waits while `others_run`.
  void advance(EmbeddedText& text, bool others_run);
  // Texts give up their sequences and begin again when they are fed next. False where there is
  // none.
  bool give_up();

 private:
  void begin(EmbeddedText& text);
  void feed_chunk(EmbeddedText& text, bool others_run);
  void add_hidden(EmbeddedText& text, std::span<const Token> part);
  void add_logprobs(EmbeddedText& text, std::span<const Token> part);
  void leave(EmbeddedText& text);

  Session& session_;
  PrefixCache& prefixes_;
  SequencePool& sequences_;
  std::vector<std::uint64_t> texts_;  // by sequence: the text that is fed there, or 0
  std::uint64_t last_text_ = 0;
  Batch batch_;
};

}  // namespace leq
