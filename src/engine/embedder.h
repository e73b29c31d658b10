// Embeds a text as one vector, the mean over its tokens of the normed last hidden states, or
// computes the probabilities of its tokens. It feeds the text to the session on an idle sequence,
// one chunk per call.
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

// The caller sets `tokens` and `top` and reads `mean` or `logprobs`; the embedder uses the rest.
struct EmbeddedText {
  std::vector<Token> tokens;
  // If set, log probabilities of the tokens are computed, each with `*top` alternatives.
  std::optional<int> top = {};
  std::vector<float> mean = {};              // [W]
  std::vector<TokenLogprobs> logprobs = {};  // [tokens - 1] for the tokens after the first
  std::vector<double> sums = {};
  std::size_t fed = 0;
  std::int32_t sequence = -1;  // -1: not assigned yet, or released
  std::uint64_t id = 0;

  bool done() const { return !tokens.empty() && sequence < 0 && fed == tokens.size(); }
};

class Embedder {
 public:
  // The three referenced objects must outlive the embedder.
  Embedder(Session& session, PrefixCache& prefixes, SequencePool& sequences);

  // Feeds one chunk. The text keeps its sequence until it is done or an error is thrown. If too few
  // pages are free, the call does nothing while `others_run`, because replies will free pages.
  void advance(EmbeddedText& text, bool others_run);
  // Evicts all texts that are being fed, which frees their pages; each text starts again with its
  // next chunk. Returns false if no text is being fed.
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
  std::vector<std::uint64_t> texts_;  // by sequence: id of the text that uses it, or 0
  std::uint64_t last_text_ = 0;
  Batch batch_;
};

}  // namespace leq
