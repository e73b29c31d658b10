// A file with a base model's distributions at every scored position of a text, so that the base
// model runs once and any number of others are compared with it.
//
//   64 bytes | JSON: what was measured | rows, all of one size
// A row holds the negative log-likelihood of the true token (f64), the most likely token (u32), the
// step (f32), the XXH3-64 of the rest, and for each token of the vocabulary the distance of its log
// probability from the largest one, in steps (u16). Distances stop at 40 nats: what is less likely
// by that has no part in any sum. The step is at most 40/65535 nats, so a log probability is off by
// at most 3.1e-4; probabilities are scaled to sum to 1 again when read. With errors d of the log
// probabilities KL moves by the covariance of d and log(p/q) under p, and by var(d)/2 <= 4.7e-8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "eval/protocol.h"
#include "model/batch.h"

namespace leq {

inline constexpr double kDeepestLogProb = 40;  // nats below the largest log probability

// The measurement that a base file belongs to; a run compared with it must have the same.
struct DivergenceKey {
  std::string protocol, join, dataset_hash, text_sha256;
  std::string tokens_sha256;  // of the ids as fed: another tokenizer gives another hash
  std::int64_t window = 0, stride = 0, tokens = 0, windows = 0, scored = 0, vocab = 0;
  std::string model, type, key_type, value_type;  // of the base model; not compared
};

// Hash of the ids, and of the token that replaces the first one of each window.
std::string token_hash(std::span<const Token> tokens, Token window_bos);

class DivergenceBaseWriter {
 public:
  // The file gets its final name only in finish().
  DivergenceBaseWriter(const std::filesystem::path& path, const DivergenceKey& key);
  ~DivergenceBaseWriter();

  std::size_t row_bytes() const;
  // Packs one row into row_bytes() bytes; callable from any thread. Returns the nll of `target`,
  // NaN where a logit is not finite (the row must not be added then).
  double encode(std::span<const float> logits, std::int64_t target, std::span<std::byte> out) const;
  void add_rows(std::span<const std::byte> rows);  // whole rows, in the order of the text
  // Throws Error where the number of rows differs from that in the key. Returns the file's size.
  std::uint64_t finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class DivergenceBaseReader {
 public:
  // Throws Error naming the file: no base file, another version, cut off, or damaged.
  explicit DivergenceBaseReader(const std::filesystem::path& path);
  ~DivergenceBaseReader();

  const DivergenceKey& key() const;
  // Throws Error naming what differs and both values.
  void require_same(const DivergenceKey& run) const;
  // Reads row `index` in [0, key().scored); callable from any thread. Throws Error naming the row
  // where its checksum does not match.
  void decode(std::int64_t index, BaseDistribution& out) const;
  // Releases the cached pages of rows [first, first + count), which are not read again soon.
  void drop(std::int64_t first, std::int64_t count) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leq
