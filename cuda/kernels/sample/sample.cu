// Sampling in several passes. Many blocks scan a row; without top-k many blocks sum its masses;
// many blocks list its candidates; one block per row draws. Greedy rows need no list.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/sample/sample_select.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlockTokens = 4096;  // tokens of a row that one block scans
// The last pass has one block per row, which gets the most threads if the vocabulary is large.
constexpr int kMaxDrawThreads = 1024, kFewDrawThreads = 128;
constexpr std::int64_t kLargeVocabulary = 8192;

__device__ __forceinline__ bool keeps_k(const SampleRule& rule) {
  return rule.top_k > 0 && rule.temperature > 0;
}
__device__ __forceinline__ bool is_whole(const SampleRule& rule) {
  return rule.top_k <= 0 && rule.temperature > 0;
}
__device__ __forceinline__ bool has_token(const SampleState& state) {
  return state.best != 0 && state.bad == 0;
}

__device__ __forceinline__ float* row_of(const SampleArguments& a, unsigned row) {
  return a.logits.values + row * a.logits.stride;
}

__global__ void __launch_bounds__(kThreads)
    sample_change(const LEQ_GRID_CONSTANT SampleArguments a) {
  LEQ_BOUNDS(kThreads);
  float* logits = row_of(a, blockIdx.x);
  const SampleRule& rule = a.rules[blockIdx.x];
  const std::int32_t end = a.change_ends[blockIdx.x + 1];
  for (std::int32_t i = a.change_ends[blockIdx.x] + threadIdx.x; i < end; i += kThreads) {
    const LogitChange change = a.changes[i];
    const float logit = logits[change.id];
    a.saved[i] = logit;
    // Invalid logits remain unchanged, so that the next pass reports them.
    if (logit <= kLargestLogit) logits[change.id] = changed_logit(logit, rule, change);
  }
}

// Finds the best token and the first bad logit; for top-k, counts tokens by their first digit.
__global__ void __launch_bounds__(kThreads) sample_scan(const LEQ_GRID_CONSTANT SampleArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_SHARED(unsigned[kSampleBins], bins);
  const float* logits = row_of(a, blockIdx.y);
  SampleState& state = a.states[blockIdx.y];
  const bool counts = keeps_k(a.rules[blockIdx.y]);
  if (counts) {
    for (int i = threadIdx.x; i < kSampleBins; i += kThreads) bins[i] = 0;
    __syncthreads();
  }
  const std::int64_t first = blockIdx.x * kBlockTokens;
  const std::int64_t end = min(first + kBlockTokens, a.vocabulary);
  SampleKey best = 0;
  unsigned bad = 0;
  for (std::int64_t id = first + threadIdx.x; id < end; id += kThreads) {
    const float logit = logits[id];
    if (!(logit <= kLargestLogit)) bad = max(bad, ~static_cast<unsigned>(id));
    if (!(logit <= kLargestLogit) || logit == kNoLogit) continue;
    const SampleKey key = sample_key(order_of(logit), static_cast<unsigned>(id));
    best = max(best, ~key);
    if (counts) atomicAdd(&bins[key >> kFirstShift], 1u);
  }
  best = block_max(best);
  bad = block_max(bad);
  if (threadIdx.x == 0 && best != 0) atomicMax(&state.best, best);
  if (threadIdx.x == 0 && bad != 0) atomicMax(&state.bad, bad);
  if (!counts) return;
  for (int i = threadIdx.x; i < kSampleBins; i += kThreads) {
    if (bins[i] != 0) atomicAdd(&state.bins[i], static_cast<unsigned long long>(bins[i]));
  }
}

// For rows without top-k: adds the masses of tokens by their distance from the best token.
__global__ void __launch_bounds__(kThreads)
    sample_masses(const LEQ_GRID_CONSTANT SampleArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_SHARED(SampleBins, top_p_bins);
  LEQ_SHARED(SampleBins, draw_bins);
  const float* logits = row_of(a, blockIdx.y);
  SampleState& state = a.states[blockIdx.y];
  const SampleRule& rule = a.rules[blockIdx.y];
  if (!is_whole(rule) || !has_token(state)) return;
  const SampleDistance distance(logit_of_key(~state.best), rule);
  top_p_bins.clear();
  draw_bins.clear();
  __syncthreads();
  const std::int64_t first = blockIdx.x * kBlockTokens;
  const std::int64_t end = min(first + kBlockTokens, a.vocabulary);
  for (std::int64_t id = first + threadIdx.x; id < end; id += kThreads) {
    const float logit = logits[id];
    const unsigned digit = distance.digit(logit);
    const float weight = device_exp(logit - distance.largest);
    if (rule.top_p < 1) top_p_bins.add(digit, mass_of(weight));
    if (weight < rule.min_p) continue;
    draw_bins.add(digit, mass_of(device_exp((logit - distance.largest) / rule.temperature)));
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kSampleBins; i += kThreads) {
    if (top_p_bins.sum(i) != 0) atomicAdd(&state.bins[i], top_p_bins.sum(i));
    if (draw_bins.sum(i) != 0) atomicAdd(&state.draw_bins[i], draw_bins.sum(i));
  }
}

// The digits of a row's candidates: `alone` (kSampleBins: none), and the range `first` to `last`.
struct SampleDigits {
  unsigned alone, first, last;
  __device__ __forceinline__ bool hold(unsigned digit) const {
    return digit == alone || (digit >= first && digit <= last);
  }
};

// With top-k: all digits up to that of the k-th best token. Without: the digit of top-p's limit and
// those where the draw may end, because the limit's position in its digit is not known yet.
__device__ SampleDigits digits_of(const SampleState& state, const SampleRule& rule) {
  if (rule.top_k > 0) {
    const auto count = [&](unsigned digit) { return state.bins[digit]; };
    const auto goal = [&](unsigned long long) {
      return static_cast<unsigned long long>(rule.top_k);
    };
    return {kSampleBins, 0, find_digit(count, goal).digit};
  }
  const unsigned limit = rule.top_p < 1 ? top_p_digit(state, rule).digit : kSampleBins;
  const auto drawn_of = [&](unsigned digits) {
    const auto mass = [&](unsigned digit) { return digit < digits ? state.draw_bins[digit] : 0; };
    const auto goal = [&](unsigned long long total) { return draw_goal(rule.random, total); };
    return find_digit(mass, goal).digit;
  };
  return {limit, drawn_of(limit), drawn_of(limit + 1)};
}

// Lists the tokens whose digits may be drawn.
__global__ void __launch_bounds__(kThreads)
    sample_candidates(const LEQ_GRID_CONSTANT SampleArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_SHARED(unsigned, place);
  const float* logits = row_of(a, blockIdx.y);
  SampleState& state = a.states[blockIdx.y];
  const SampleRule& rule = a.rules[blockIdx.y];
  if (rule.temperature == 0 || !has_token(state)) return;
  const SampleDigits digits = digits_of(state, rule);
  const SampleDistance distance(logit_of_key(~state.best), rule);
  const std::int64_t first = blockIdx.x * kBlockTokens;
  const std::int64_t end = min(first + kBlockTokens, a.vocabulary);
  const auto is_candidate = [&](float logit) {
    const unsigned digit =
        rule.top_k > 0 ? order_of(logit) >> (32 - kSampleDigitBits) : distance.digit(logit);
    return logit > kNoLogit && digits.hold(digit);
  };
  unsigned mine = 0;
  for (std::int64_t id = first + threadIdx.x; id < end; id += kThreads) {
    if (is_candidate(logits[id])) ++mine;
  }
  const Before before = block_before(mine);
  if (threadIdx.x == 0) {
    place = atomicAdd(&state.candidates, static_cast<unsigned>(before.total));
  }
  __syncthreads();
  unsigned at = place + static_cast<unsigned>(before.mine);
  SampleKey* list = a.candidates + blockIdx.y * static_cast<std::size_t>(kMaxCandidates);
  for (std::int64_t id = first + threadIdx.x; id < end && at < kMaxCandidates; id += kThreads) {
    const float logit = logits[id];
    if (is_candidate(logit)) list[at++] = sample_key(order_of(logit), static_cast<unsigned>(id));
  }
}

// Draws the token of a row that is not greedy and has tokens to draw.
__device__ unsigned draw(const SampleRow& row) {
  SampleKey limit = kLastKey;
  if (row.rule.top_k > 0) limit = select_key(row, SamplePhase::top_k, limit);
  if (row.rule.top_p < 1) limit = select_key(row, SamplePhase::top_p, limit);
  return static_cast<unsigned>(select_key(row, SamplePhase::draw, limit));
}

__global__ void __launch_bounds__(kMaxDrawThreads)
    sample_draw(const LEQ_GRID_CONSTANT SampleArguments a) {
  LEQ_BOUNDS(kMaxDrawThreads);
  float* logits = row_of(a, blockIdx.x);
  const SampleState& state = a.states[blockIdx.x];
  const SampleRule rule = a.rules[blockIdx.x];
  std::int32_t drawn = static_cast<std::int32_t>(~state.best);
  if (state.bad != 0) {
    drawn = bad_logit_of(static_cast<std::int32_t>(~state.bad));
  } else if (state.best == 0) {
    drawn = kAllBanned;
  } else if (rule.temperature > 0) {
    const bool listed = state.candidates <= kMaxCandidates;
    const SampleKey* list = a.candidates + blockIdx.x * static_cast<std::size_t>(kMaxCandidates);
    drawn = static_cast<std::int32_t>(
        draw({rule, state, SampleDistance(logit_of_key(~state.best), rule), listed ? list : nullptr,
              state.candidates, logits, a.vocabulary}));
  }
  if (threadIdx.x == 0) a.drawn[blockIdx.x] = drawn;
  if (!a.any_change) return;
  __syncthreads();  // after all threads have read the logits
  const std::int32_t end = a.change_ends[blockIdx.x + 1];
  for (std::int32_t i = a.change_ends[blockIdx.x] + threadIdx.x; i < end; i += blockDim.x) {
    logits[a.changes[i].id] = a.saved[i];
  }
}

}  // namespace

void launch_sample(const SampleArguments& a, rt::Stream& stream) {
  if (a.rows <= 0) return;
  const auto rows = static_cast<unsigned>(a.rows);
  const dim3 parts(static_cast<unsigned>((a.vocabulary + kBlockTokens - 1) / kBlockTokens), rows);
  if (a.any_change)
    rt::run(stream, {"sample_change", dim3(rows), dim3(kThreads)}, sample_change, a);
  rt::run(stream, {"sample_scan", parts, dim3(kThreads)}, sample_scan, a);
  if (a.any_whole) rt::run(stream, {"sample_masses", parts, dim3(kThreads)}, sample_masses, a);
  if (a.any_draw) {
    rt::run(stream, {"sample_candidates", parts, dim3(kThreads)}, sample_candidates, a);
  }
  const unsigned threads = a.vocabulary > kLargeVocabulary ? kMaxDrawThreads : kFewDrawThreads;
  rt::run(stream, {"sample_draw", dim3(rows), dim3(threads)}, sample_draw, a);
}

}  // namespace leq::LEQ_GPU
