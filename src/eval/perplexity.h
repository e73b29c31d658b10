// Perplexity of a model on a text: the text, the protocol that divides it into windows, the scores
// of a window and their summary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// SHA-256 of wiki.test.raw, the test split of wikitext-2-raw-v1 as one file.
inline constexpr std::string_view kWikitext2TestSha256 =
    "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08";
// Number of tokens of the joined rows with GPT-2's vocabulary, to verify that a text was joined.
inline constexpr std::int64_t kWikitext2TestGpt2Tokens = 287'644;
inline constexpr std::int64_t kGpt2Vocabulary = 50'257;

enum class Join : std::uint8_t {
  none,  // the file unchanged
  hf,    // rows joined as "\n\n".join(rows) on Hugging Face's data set
};
std::string_view join_name(Join join);  // "none", "hf"

// A row is a line with its "\n". Rows of only white space become empty; then rows are joined with
// "\n\n". White space is Unicode's, as in Python's str.strip.
std::string join_rows(std::string_view raw);

// The data set of a perplexity run: the file, how its rows are joined, and hashes that identify the
// measured text.
struct EvaluationText {
  std::string text;          // joined
  std::string dataset_hash;  // SHA-256 of the file
  std::string text_sha256;   // SHA-256 of `text`
  Join join = Join::none;
};

// hf for wiki.test.raw, whose lines are rows of a data set; none for other texts.
Join default_join(std::string_view dataset_hash);

// Without a join, default_join. Throws Error naming the file if it cannot be read, is empty, or is
// not valid UTF-8 (with offset).
EvaluationText read_evaluation_text(const std::filesystem::path& path, std::optional<Join> join);

// Perplexity protocols: how a text is divided into windows of tokens, and which of these tokens are
// scored.
enum class Protocol : std::uint8_t {
  hf,            // disjoint windows; exp of the mean of window means (GPTQ, AWQ, ...)
  hf_stride,     // overlapping windows; scores each token once with the longest context
  llamacpp_512,  // chunks of 512 that begin with BOS; scores the second half
};
std::string_view protocol_name(Protocol protocol);  // "hf", "hf-stride", "llamacpp-512"

// Settings as given by a user. For those that are absent the protocol's defaults apply.
struct ProtocolRequest {
  std::string protocol = "hf";
  std::optional<std::string> join = {};  // default hf, but see default_join; not for llamacpp-512
  std::optional<std::int64_t> window = {};  // default min(context, 2048)
  std::optional<std::int64_t> stride = {};  // default 512; window/2 for windows below 1024
  std::int64_t chunks = 0;                  // number of windows to use; 0 = all
};

// Settings with all defaults filled in.
struct ProtocolSettings {
  Protocol protocol = Protocol::hf;
  Join join = Join::hf;
  std::int64_t window = 0;
  std::int64_t stride = 0;  // distance in tokens between starts of windows
  std::int64_t chunks = 0;
};

// `context` is the longest context of the model. Throws Error naming flag, value and range, or two
// flags that contradict each other.
ProtocolSettings resolve_protocol(const ProtocolRequest& request, std::int64_t context);

// `count` tokens of the text from index `first` on are fed as a separate text. The tokens from
// index `scored_from` > first of the whole text on are predicted and scored.
struct Window {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t scored_from = 0;
  std::int64_t scored() const { return first + count - scored_from; }
};

// The windows of a text of `tokens` tokens. Throws Error naming `text` if it is shorter than one
// window.
std::vector<Window> plan_windows(const ProtocolSettings& settings, std::int64_t tokens,
                                 std::string_view text = "the text");

// A description such as "hf: windows of 1024 tokens side by side, rows joined by hf".
std::string describe(const ProtocolSettings& settings);

// Feeds the windows of a text to a model and passes the logits of scored tokens to the caller.

// Number of rows with logits per forward pass.
inline constexpr std::int64_t kOutputRows = 512;

// Consecutive scored rows of a window.
struct ScoredRows {
  std::int64_t first = 0;  // index of the first row among the scored rows of the window
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  const float* logits = nullptr;   // [rows][V]
  const Token* targets = nullptr;  // [rows] the tokens that they predict

  std::span<const float> row(std::int64_t index) const {
    return {logits + index * vocab, static_cast<std::size_t>(vocab)};
  }
};

// Inputs of a run other than the session, whose context must be at least one window.
struct PerplexityRun {
  std::span<const Token> tokens;
  std::span<const Window> windows;
  Protocol protocol = Protocol::hf;
  Token window_bos = kNoToken;  // replaces each window's first token (llamacpp-512)
  // Optional. Called after each window with the number of windows done and the perplexity so far.
  std::function<void(std::int64_t done, double ppl_so_far)> progress = {};
  std::function<void()> before_forward = {};  // optional; may throw to end the run
};

// Reuses its buffers for all windows. Every window starts with an empty cache.
class WindowLogits {
 public:
  // `run` must outlive it.
  WindowLogits(Session& session, const PerplexityRun& run);

  // Calls `sink` with the window's scored rows, in order, in one or more parts. Throws Error if a
  // token is not in the model's vocabulary.
  void feed(const Window& window, const std::function<void(const ScoredRows&)>& sink);

 private:
  std::int64_t vocab() const { return session_.transformer().config().vocab; }
  void forward(std::int64_t begin, std::int64_t scored, std::int64_t end);

  Session& session_;
  const PerplexityRun& run_;
  std::int64_t chunk_ = 0;
  std::vector<Token> window_;
  Batch batch_;
  std::vector<float> logits_;  // [rows of a chunk][V]
};

// Throws Error naming token and window if `value`, computed from the token's logits, is not finite.
void require_finite_logits(double value, const Window& window, std::int64_t scored_row);

// Perplexity of a model on a text: exp of the mean negative log-likelihood of its tokens. A
// protocol defines the windows, the scored tokens and how the mean is formed.
struct PerplexityResult {
  double nll = 0;             // nats per token; hf: mean of the windows' means
  double ppl = 0;             // exp(nll)
  double standard_error = 0;  // of ppl: over window means for hf with two windows or more, else
                              // over tokens; to first order, ppl times the standard error of nll
  std::int64_t windows = 0;
  std::int64_t scored = 0;
};

// Token ids of a text, tokenized as one string; with BOS at the start if the tokenizer adds one.
std::vector<Token> encode_text(const Tokenizer& tokenizer, std::string_view text);

// -log softmax(logits)[target] in double. NaN if a logit is not finite.
double negative_log_likelihood(std::span<const float> logits, std::int64_t target);

// Negative log-likelihoods of a window's scored tokens, in order. `pool` parallelizes the softmax.
// Throws Error naming window and token if a logit is not finite.
std::vector<double> score_window(WindowLogits& logits, ThreadPool& pool, const Window& window);

// Combines the negative log-likelihoods of the scored tokens of all windows.
PerplexityResult summarize(Protocol protocol, std::span<const std::vector<double>> window_nlls);

// Each window is a separate forward pass with an empty cache. `pool` parallelizes the softmax.
// Throws Error naming the window and token if a logit is not finite.
PerplexityResult measure_perplexity(Session& session, ThreadPool& pool, const PerplexityRun& run);

}  // namespace leq
