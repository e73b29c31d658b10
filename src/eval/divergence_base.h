// A file with a base model's distributions at every scored position of a text, so that the base
// model runs once and any number of other models can be compared with it.
//
//   64 bytes | JSON: what was measured | rows, all of one size
// A row holds the negative log-likelihood of the true token (f64), the most likely token (u32), the
// step (f32), the XXH3-64 of the rest, and for each token of the vocabulary the distance of its log
// probability from the largest one, in steps (u16). Distances end at 40 nats, because less likely
// tokens do not affect any sum. The step is at most 40/65535 nats, so a log probability is off by
// at most 3.1e-4. Reading scales probabilities to sum 1. With errors d of the log probabilities, KL
// changes by the covariance of d and log(p/q) under p, and by var(d)/2 <= 4.7e-8.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "eval/divergence.h"
#include "eval/protocol.h"
#include "model/batch.h"

namespace leq {

inline constexpr double kDeepestLogProb = 40;  // nats below the largest log probability

// Describes the measurement of a base file; a run that is compared with it must be the same.
struct DivergenceKey {
  std::string protocol, join, dataset_hash, text_sha256;
  std::string tokens_sha256;  // hash of the token ids, which depends on the tokenizer
  std::int64_t window = 0, stride = 0, tokens = 0, windows = 0, scored = 0, vocab = 0;
  std::string model, type, key_type, value_type;  // of the base model; may differ from the run's
};

// Hash of the token ids, and of the token that replaces the first token of each window.
std::string token_hash(std::span<const Token> tokens, Token window_bos);

// The first bytes of a file.
struct DivergencePreamble {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t json_bytes;
  std::uint64_t json_xxh3;
  std::uint64_t rows_offset;  // a multiple of 64
  std::uint64_t row_bytes;
  std::uint64_t rows;
  std::uint64_t file_bytes;
  std::uint64_t xxh3;  // of the preamble up to here
};

class DivergenceBaseWriter {
 public:
  // The file gets its final name in finish().
  DivergenceBaseWriter(const std::filesystem::path& path, const DivergenceKey& key);

  std::size_t row_bytes() const { return static_cast<std::size_t>(preamble_.row_bytes); }
  // Packs one row into row_bytes() bytes; may be called from any thread. Returns the nll of
  // `target`, or NaN if a logit is not finite (such a row must not be added).
  double encode(std::span<const float> logits, std::int64_t target, std::span<std::byte> out) const;
  void add_rows(std::span<const std::byte> rows);  // whole rows, in order of the text
  // Returns the file's size. Throws Error if the number of rows differs from that in the key.
  std::uint64_t finish();

 private:
  std::string name_;
  AtomicFile file_;
  DivergenceKey key_;
  DivergencePreamble preamble_ = {};
};

class DivergenceBaseReader {
 public:
  // Throws Error naming the file if it is no base file, of another version, truncated or damaged.
  explicit DivergenceBaseReader(const std::filesystem::path& path);

  const DivergenceKey& key() const { return key_; }
  // Throws Error naming a difference and both values.
  void require_same(const DivergenceKey& run) const;
  // Reads row `index` in [0, key().scored); may be called from any thread. Throws Error naming the
  // row if its checksum is wrong.
  void decode(std::int64_t index, BaseDistribution& out) const;
  // Releases the cached pages of `count` rows from `first` on, which are not needed again soon.
  void drop(std::int64_t first, std::int64_t count) const;

 private:
  MappedFile file_;
  DivergencePreamble preamble_ = {};
  DivergenceKey key_;
};

}  // namespace leq
