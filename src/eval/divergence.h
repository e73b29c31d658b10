// Compares a model's distributions with those of its base model on the same text: KL divergence,
// agreement of the most likely token, and the change of the true token's probability. Either the
// base model writes its distributions to a file for later comparisons, or both models run side by
// side.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/file.h"
#include "eval/perplexity.h"
#include "model/decoder.h"
#include "model/open_model.h"
#include "model/session.h"

namespace leq {

// The base model's distribution at one position.
struct BaseDistribution {
  std::vector<double> log_probs;  // [V]; probabilities sum to 1
  double nll = 0;                 // -log probability of the true token
  std::int64_t top = 0;           // most likely token, lowest id on ties
};

// The measurements at one position.
struct RowDivergence {
  double kl = 0;        // sum p (log p - log q) in nats; p: base model, q: other model
  double nll_base = 0;  // -log p(true token)
  double nll = 0;       // -log q(true token)
  bool same_top = false;

  double delta_p() const;  // q - p of the true token
};

// Computes log softmax of `logits` [V] in double. The nll is NaN if a logit is not finite.
void fill_base(std::span<const float> logits, std::int64_t target, BaseDistribution& out);

// Both models must have the same vocabulary. The nll is NaN if a logit is not finite.
RowDivergence compare(const BaseDistribution& base, std::span<const float> logits,
                      std::int64_t target);

// A number and its standard error.
struct Estimate {
  double value = 0;
  double error = 0;
};

struct DivergenceResult {
  Estimate kl_mean, kl_median, kl_p99, kl_p999;  // nats
  Estimate same_top1;                            // share of positions with equal top tokens
  Estimate delta_p_mean, delta_p_rms;            // change of the true token's probability, -1 to 1
  Estimate ppl, ppl_base, ppl_ratio;             // according to the run's protocol
  std::int64_t windows = 0;
  std::int64_t scored = 0;
  std::vector<double> window_kl = {};  // mean KL of each window, nats
};

// Collects the measurements of positions, window by window.
class Divergence {
 public:
  // Adds the rows of one window in order; no effect if there are none.
  void add_window(std::vector<RowDivergence> rows);
  const std::vector<std::vector<RowDivergence>>& windows() const { return windows_; }
  std::vector<double> window_kl() const;  // mean KL of each window, nats

  // Means are over positions. Their errors are computed over windows, because positions of one
  // window are not independent: with window sums S_w of n_w positions and the mean m over N,
  // error^2 = W/(W-1) sum_w (S_w - m n_w)^2 / N^2; with only one window, over positions. Quantiles
  // are interpolated between neighbours. Their error is half of the distance between the quantiles
  // one binomial standard error of the rank below and above (Woodruff 1952). Throws Error if there
  // are no positions.
  DivergenceResult summarize(Protocol protocol) const;
  // The perplexity of the model that is compared with the base.
  PerplexityResult perplexity(Protocol protocol) const;

 private:
  std::vector<std::vector<RowDivergence>> windows_;
};

class DivergenceBaseReader;
struct DivergenceKey;

struct WrittenBase {
  PerplexityResult result;  // perplexity of the base model
  std::uint64_t file_bytes = 0;
};

// Measures the perplexity as measure_perplexity does and writes the distribution of every scored
// position. `key` describes the run and must have the counts of `run`.
WrittenBase write_divergence_base(Session& session, ThreadPool& pool, const PerplexityRun& run,
                                  const std::filesystem::path& path, const DivergenceKey& key);

// Compares the model of `session` with a base file. `key` describes this run; throws Error naming
// what differs from the file. Calls run.progress with the mean KL so far.
Divergence measure_divergence(Session& session, ThreadPool& pool, const PerplexityRun& run,
                              const DivergenceBaseReader& base, const DivergenceKey& key);

// Compares the model of `session` with that of `base`, window by window in one process, without
// quantizing the distributions. Both sessions need a context and output rows for at least one
// window. Calls run.progress with the mean KL so far.
Divergence measure_divergence(Session& base, Session& session, ThreadPool& pool,
                              const PerplexityRun& run);

// The mean of first - second over paired windows and its standard error, which tells whether two
// models measured on the same windows differ. Throws Error if the numbers of windows differ.
Estimate paired_difference(std::span<const double> first, std::span<const double> second);

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

// Quality loss of each part of a quantized model, with only that part in the unquantized model.

enum class PartSide : std::uint8_t { weights, inputs, both };

struct ModelPart {
  std::int64_t layer = 0;
  std::optional<std::size_t> site;  // index in linear_sites; nullopt: the whole layer
  std::string name;                 // "layers.3", "layers.3.down"
};
// All layers, or all sites, whose weights or inputs are quantized in `model`.
std::vector<ModelPart> layer_parts(const Model& model);
std::vector<ModelPart> site_parts(const Model& model);

// Calls `use` with a session of `base` in which one layer is that of `other`, with its weights,
// folds and inputs. `limits` are the session's; its cache may have other types for the layer.
using SessionUse = std::function<void(Session& session)>;
void with_layer_of(const Model& base, const Model& other, std::int64_t layer, Backend& backend,
                   const RunLimits& limits, const SessionUse& use);

// Like with_layer_of, but with the embeddings and the head of `other`, which change the logits
// directly: either as `other` runs them (PartSide::both), or only with its weights.
bool has_quantized_tables(const Model& model);
void with_tables_of(const Model& base, const Model& other, PartSide side, Backend& backend,
                    const RunLimits& limits, const SessionUse& use);

// Like with_layer_of, but weights, inputs or both of a part are rounded as in `other`, computed in
// f32. Scales that `other` has folded into neighbours are divided out: scales in a norm by the
// gains in both files, scales in v and up by a least-squares fit of the columns of o and down. CPU
// only. Throws Error naming the tensor or site if the files are not of one checkpoint, for inputs
// with a moving scale, and for inputs of experts.
void with_rounded_part(const Model& base, const Model& other, const ModelPart& part, PartSide side,
                       Backend& backend, const RunLimits& limits, const SessionUse& use);

// Rounds a row of inputs [K] in place: row times `factors` [K] to codes of `act` and back.
// `act_scale` is for act tensor. See docs/numerics.md.
void round_inputs(std::span<float> row, std::span<const float> factors, ActKind act,
                  float act_scale);

}  // namespace leq
