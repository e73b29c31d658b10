#include "tools/bench/parts/speed.h"

#include <algorithm>
#include <chrono>

#include "backend/checks.h"
#include "base/error.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "model/linear_sites.h"
#include "sampling/settings.h"

namespace leq {
namespace {

constexpr std::int64_t kTextPositions = 512;  // random text; repeated up to the depth

// The default sampling settings of leq-run.
SampleRule usual_rule() {
  SampleRule rule = sample_rule(SamplingSettings{});
  rule.random = 1u << 31;
  return rule;
}

std::vector<Token> random_tokens(std::int64_t count, std::int64_t vocab, std::uint64_t seed) {
  Random random(seed);
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (Token& token : tokens) {
    token = static_cast<Token>(random.below(static_cast<std::uint32_t>(vocab)));
  }
  return tokens;
}

// Fills positions 0 ... depth - 1 of a sequence.
void fill_cache(Session& session, const BenchTest& test, std::int32_t sequence) {
  const std::int64_t vocab = session.transformer().config().vocab;
  session.state().drop(sequence);
  if (test.depth == 0) return;
  const std::int64_t fed = std::min(test.depth, kTextPositions);
  session.feed(sequence, random_tokens(fed, vocab, 1 + static_cast<std::uint64_t>(sequence)));
  if (fed < test.depth) session.state().repeat(sequence, test.depth);
  session.state().only_checkpoint(sequence);
}

// The steps of a test on a session, one after another. A prompt is one step; generation takes steps
// of one token per sequence.
class BenchSteps {
 public:
  // Fills the cache to the test's depth with 512 positions of random text, repeated. `sampled`:
  // samples tokens from the logits as in normal use, but discards them, so that the text stays the
  // same. Without `sampled` the logits are not read.
  BenchSteps(Session& session, const BenchTest& test, bool sampled);

  // Returns to the test's first step.
  void rewind();
  // Runs a step and waits until it has completed; returns false if no step is left.
  bool next();
  std::int64_t count() const;  // number of steps in the test
  Backend& backend() { return session_.transformer().backend(); }

 private:
  const Rows& feed(std::span<const Token> tokens);

  Session& session_;
  BenchTest test_;
  std::vector<Token> tokens_;
  std::size_t done_ = 0;  // number of tokens
  Batch batch_;
  std::vector<SampleRequest> requests_;  // one per sequence; empty: not sampled
  std::vector<std::int32_t> drawn_;
};

BenchSteps::BenchSteps(Session& session, const BenchTest& test, bool sampled)
    : session_(session),
      test_(test),
      tokens_(random_tokens(test.tokens(), session.transformer().config().vocab, 0)) {
  require(test.tokens() > 0, ErrorKind::bad_setting, "bench: nothing to run");
  ensure(test.sequences == 1 || test.prompt == 0, "bench: ", test.sequences,
         " sequences: expected no prompt, found ", test.prompt, " tokens");
  for (std::int32_t sequence = 0; sequence < test.sequences; ++sequence) {
    fill_cache(session, test, sequence);
  }
  if (!sampled) return;
  requests_.assign(static_cast<std::size_t>(test.sequences), {usual_rule(), {}});
  drawn_.resize(requests_.size());
}

void BenchSteps::rewind() {
  done_ = 0;
  for (std::int32_t sequence = 0; sequence < test_.sequences; ++sequence) {
    const bool kept = session_.state().restore(sequence, test_.depth) == test_.depth;
    if (!kept) fill_cache(session_, test_, sequence);
  }
}

bool BenchSteps::next() {
  if (done_ == tokens_.size()) return false;
  const auto prompt = static_cast<std::size_t>(test_.prompt);
  const auto step = done_ < prompt ? prompt : static_cast<std::size_t>(test_.sequences);
  const Rows& logits = feed(std::span(tokens_).subspan(done_, step));
  if (requests_.empty() || done_ < prompt) {
    backend().synchronize();
  } else {
    backend().sample(logits, requests_, drawn_);
    require_drawn(backend(), logits, drawn_);
  }
  done_ += step;
  return true;
}

std::int64_t BenchSteps::count() const { return (test_.prompt > 0 ? 1 : 0) + test_.generated; }

// Feeds several tokens of one sequence, or one token of each sequence.
const Rows& BenchSteps::feed(std::span<const Token> tokens) {
  if (test_.sequences == 1) return session_.advance(0, tokens);
  batch_.clear();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    batch_.add(static_cast<std::int32_t>(i), &tokens[i], 1, Batch::Want::last);
  }
  return session_.transformer().forward(batch_, session_.state());
}

// Bytes of keys and values in all layers that the query at position `depth` reads: codes, or f16
// copies for positions whose copies are read instead of codes.
std::uint64_t cache_bytes(Session& session, std::int64_t depth) {
  const ModelConfig& config = session.transformer().config();
  const KvResidual& residual = session.cache().residual();
  std::uint64_t bytes = 0;
  const std::vector<std::int64_t> cached = config.cache_layers();
  for (const std::int64_t layer : config.attention_layers()) {
    const std::int64_t own = config.layer(layer).attention()->kv_of;
    const auto place = std::ranges::find(cached, own >= 0 ? own : layer) - cached.begin();
    const std::int64_t window = config.window(layer);
    const std::int64_t visible = window == 0 ? depth : std::min(depth, window);
    const std::int64_t first = std::max<std::int64_t>(depth - visible, residual.sinks);
    const std::int64_t closed = std::max<std::int64_t>(0, residual.closed_for(depth) - first);
    const KvLayer kv = session.cache().layer(place);
    const auto side = [&](std::size_t page_bytes, bool copied) {
      const std::int64_t coded = copied ? closed : visible;
      bytes += page_bytes * static_cast<std::uint64_t>(coded) / kPageTokens;
      bytes += kv.copy_page_bytes * static_cast<std::uint64_t>(visible - coded) / kPageTokens;
    };
    side(kv.key_page_bytes, kv.key_copies != nullptr);
    side(kv.value_page_bytes, kv.value_copies != nullptr);
  }
  return bytes;
}

MachineLimits better(const MachineLimits& a, const MachineLimits& b) {
  return {std::max(a.read_gbps, b.read_gbps), std::max(a.compute_gops, b.compute_gops),
          a.compute_kind, std::max(a.head_gops, b.head_gops)};
}

// A prompt reads the weights once per batch; generation reads them once per token.
double bytes_read(const BenchTest& test, const BenchWork& work) {
  const std::int64_t batches = (test.prompt + work.batch_tokens - 1) / work.batch_tokens;
  const auto prompt =
      static_cast<double>(std::max(work.prompt_bytes, work.weight_bytes) + work.kv_bytes);
  return static_cast<double>(batches) * prompt +
         static_cast<double>(test.generated) * static_cast<double>(work.bytes_per_token());
}

// Lower bound on the seconds of a run: its parts run one after the other, each at its limit.
double seconds_at(const MachineLimits& limits, const BenchTest& test, const BenchWork& work) {
  double seconds = 0;
  const auto multiply = [&](std::int64_t tokens, double operations, double gops) {
    seconds += static_cast<double>(tokens) * operations / 1e9 / gops;
  };
  if (test.prompt > 0) multiply(test.prompt, work.block_operations, limits.compute_gops);
  if (test.generated > 0) {
    seconds += static_cast<double>(test.generated) * static_cast<double>(work.bytes_per_token()) /
               1e9 / limits.read_gbps;
  }
  if (test.sequences > 1) {
    multiply(test.tokens(), work.block_operations, limits.compute_gops);
    multiply(test.tokens(), work.head_operations,
             limits.head_gops > 0 ? limits.head_gops : limits.compute_gops);
  }
  return seconds;
}

// Smallest code width, in bits, among linears whose codes are multiplied as integers; 0 if none.
int code_bits(const Linear& linear) {
  if (!is_coded(linear.act)) return 0;
  int bits = 8;
  for (const LinearSegment& part : linear.parts()) bits = std::min(bits, part.weight.scheme.bits);
  return bits;
}

using Clock = std::chrono::steady_clock;

struct Run {
  double seconds = 0;
  StepTimes times;
};

Run run_once(BenchSteps& steps, bool looked_at) {
  Backend& backend = steps.backend();
  steps.rewind();
  Run run;
  const auto start = Clock::now();
  if (looked_at) backend.start_times();
  while (steps.next()) {
  }
  if (looked_at) run.times = backend.stop_times();
  run.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return run;
}

const Run& median_run(std::vector<Run>& runs) {
  const auto middle = runs.begin() + std::ssize(runs) / 2;
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Run& a, const Run& b) { return a.seconds < b.seconds; });
  return *middle;
}

}  // namespace

std::string bench_test_name(const BenchTest& test) {
  const std::string prompt = test.prompt > 0 ? "pp" + std::to_string(test.prompt) : "";
  std::string generated = test.generated > 0 ? "tg" + std::to_string(test.generated) : "";
  if (test.sequences > 1) generated += "x" + std::to_string(test.sequences);
  return prompt + (!prompt.empty() && !generated.empty() ? "+" : "") + generated;
}

BenchWork bench_work(Session& session, const BenchTest& test) {
  BenchWork work;
  work.weight_bytes = session.weights().bytes_of_step(test.sequences);
  work.prompt_bytes = session.weights().bytes_of_step(session.limits().batch_tokens);
  const ModelConfig& config = session.transformer().config();
  const FixedStates* states = session.state().fixed();
  const std::uint64_t of_sequence =
      cache_bytes(session, test.depth) + (states != nullptr ? states->bytes_each() : 0);
  work.kv_bytes = of_sequence * static_cast<std::uint64_t>(test.sequences);
  work.block_operations = 2.0 * active_linear_parameters(config);
  work.head_operations = 2.0 * static_cast<double>(config.vocab * config.width);
  const Weights& weights = session.weights();
  work.block_bits = code_bits(*weights.layers[0].linears().front());
  for (const LayerWeights& layer : weights.layers) {
    for (const LayerLinear* linear : layer.linears()) {
      if (!linear->exact) work.block_bits = std::min(work.block_bits, code_bits(*linear));
    }
  }
  work.head_bits = code_bits(weights.head);
  work.batch_tokens = session.limits().batch_tokens;
  return work;
}

std::vector<BenchRun> time_bench_test(Session& session, const BenchTest& test, int runs,
                                      const std::function<MachineLimits()>& limits_now,
                                      const std::function<void(int)>& after_run) {
  require(runs > 0, ErrorKind::bad_setting, "bench: nothing to run");
  constexpr int kWarmSteps = 5;  // a prompt and several generation steps
  BenchSteps steps(session, test, false);
  const auto warm = [&](int count) {
    for (int step = 0; step < count && steps.next(); ++step) {
    }
    steps.rewind();
  };
  warm(kWarmSteps);
  std::vector<BenchRun> all;
  MachineLimits before = limits_now();
  for (int run = 0; run < runs; ++run) {
    // Measuring the limits evicts the model from the CPU caches; an untimed step reloads it.
    if (test.prompt == 0) warm(1);
    const Stopwatch watch;
    while (steps.next()) {
    }
    const double seconds = watch.seconds();
    steps.rewind();
    const MachineLimits after = limits_now();
    all.push_back({seconds, better(before, after)});
    before = after;
    after_run(run + 1);
  }
  return all;
}

BenchNumbers bench_numbers(const BenchTest& test, const BenchWork& work,
                           std::span<const BenchRun> runs) {
  ensure(!runs.empty(), "bench: no runs");
  std::vector<double> seconds;
  for (const BenchRun& run : runs) seconds.push_back(run.seconds);
  const auto [fastest, slowest] = std::minmax_element(seconds.begin(), seconds.end());
  const auto tokens = static_cast<double>(test.tokens());
  const double typical = median(seconds);

  BenchNumbers numbers;
  numbers.tps = tokens / typical;
  numbers.tps_min = tokens / *slowest;
  numbers.tps_max = tokens / *fastest;
  numbers.gbps = bytes_read(test, work) / typical / 1e9;
  numbers.gops = work.block_operations * numbers.tps / 1e9;
  const MachineLimits& first = runs.front().limits;
  if (first.read_gbps == 0 && first.compute_gops == 0) return numbers;
  std::vector<double> limits, shares;
  for (const BenchRun& run : runs) {
    const double at_limit = seconds_at(run.limits, test, work);
    shares.push_back(at_limit / run.seconds);
    limits.push_back(test.generated == 0                       ? run.limits.compute_gops
                     : test.prompt == 0 && test.sequences == 1 ? run.limits.read_gbps
                                                               : tokens / at_limit);
  }
  numbers.share = median(shares);
  numbers.limit = median(limits);
  numbers.limit_kind = test.generated == 0                       ? first.compute_kind
                       : test.prompt == 0 && test.sequences == 1 ? "read"
                       : test.prompt > 0                         ? "compute, then read"
                                                                 : "read, then compute";
  return numbers;
}

Breakdown break_down(Session& session, const BenchTest& test, int runs,
                     const std::function<void(int)>& after_run) {
  require(test.prompt == 0 || test.generated == 0, Setting{"breakdown"},
          ": expected a prompt or generation, found ", bench_test_name(test), "; leave out ",
          Setting{"prompt_and_generation"});
  BenchSteps steps(session, test, true);
  run_once(steps, false);  // warm-up
  std::vector<Run> plain, parts;
  for (int run = 0; run < runs; ++run) {
    plain.push_back(run_once(steps, false));
    parts.push_back(run_once(steps, true));
    after_run(run + 1);
  }
  Breakdown found;
  found.steps = steps.count();
  const auto each = 1.0 / static_cast<double>(found.steps);
  const Run& seen = median_run(parts);
  found.times = seen.times;
  for (PartTimes& part : found.times.parts) {
    part.seconds *= each;
    part.bytes /= static_cast<std::uint64_t>(found.steps);
    part.operations /= found.steps;
  }
  found.step_seconds = seen.seconds * each;
  found.plain_seconds = median_run(plain).seconds * each;
  return found;
}

}  // namespace leq
