// Sampling in several passes. Many blocks scan a row; without top-k many blocks sum its masses;
// many blocks list its candidates; one block per row draws. Greedy rows need no list. The last pass
// finds the key at which the cumulative weight of a row's tokens reaches a goal, by a radix select
// with histograms of masses, 11 bits at a time. Rows without top-k begin with a histogram by
// distance, which many blocks built. Sums are integers, so their order is free.
#include "cuda/intrinsics/float_math.cuh"
#include "cuda/intrinsics/reduce.cuh"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/sample/sample.h"

namespace leq::LEQ_GPU {
namespace {

using SampleKey = unsigned long long;
inline constexpr SampleKey kLastKey = ~0ull;
inline constexpr int kFirstShift = 64 - kSampleDigitBits;

__device__ __forceinline__ float logit_of_key(SampleKey key) {
  return logit_of(static_cast<unsigned>(key >> 32));
}

// A thread's exclusive prefix sum over the threads' values, and the total of all values.
struct Before {
  unsigned long long mine, total;
};
__device__ __forceinline__ Before block_before(unsigned long long value) {
  LEQ_SHARED(unsigned long long[32], parts);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  unsigned long long sum = value;
  for (unsigned step = 1; step < 32; step *= 2) {
    const unsigned long long other = __shfl_up_sync(kEveryLane, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) parts[warp] = sum;
  __syncthreads();
  Before before = {sum - value, 0};
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp) before.mine += parts[w];
    before.total += parts[w];
  }
  __syncthreads();
  return before;
}

// Digits of the tokens of a row without top-k: how far a logit is below the largest logit, so that
// ascending digits are descending logits. At temperature T a mass is 0 if the distance is above
// 27.8 T, which is before the last digit.
struct SampleDistance {
  float largest, scale;

  __device__ __forceinline__ SampleDistance(float largest_logit, const SampleRule& rule)
      : largest(largest_logit), scale(73 / max(rule.temperature, 1.0f)) {
    static_assert(73 * 28 < kSampleBins - 1);
  }
  __device__ __forceinline__ unsigned digit(float logit) const {
    return static_cast<unsigned>(min((largest - logit) * scale, float{kSampleBins - 1}));
  }
};

// 64-bit sums by digit. Each has two words, since shared memory has only 32-bit atomic additions.
struct SampleBins {
  unsigned low[kSampleBins], high[kSampleBins];

  __device__ __forceinline__ void clear() {
    for (unsigned i = threadIdx.x; i < kSampleBins; i += blockDim.x) low[i] = high[i] = 0;
  }
  __device__ __forceinline__ void add(unsigned digit, unsigned long long weight) {
    if (weight == 0) return;
    const auto lower = static_cast<unsigned>(weight);
    const unsigned old = atomicAdd(&low[digit], lower);
    const unsigned upper = static_cast<unsigned>(weight >> 32) + (old + lower < old ? 1u : 0u);
    if (upper != 0) atomicAdd(&high[digit], upper);
  }
  __device__ __forceinline__ unsigned long long sum(unsigned digit) const {
    return static_cast<unsigned long long>(high[digit]) << 32 | low[digit];
  }
};

// The first digit at which the cumulative sum(digit) reaches the goal, which is goal_of(total) but
// at least 1; `left` is the goal minus the sums of all earlier digits. digit is kSampleBins if the
// goal is not reached. All threads return the result, after a barrier.
struct FoundDigit {
  unsigned digit;
  unsigned long long left;
};
template <class Sum, class GoalOf>
__device__ __forceinline__ FoundDigit find_digit(Sum sum, GoalOf goal_of) {
  LEQ_SHARED(FoundDigit, found);
  const unsigned own = kSampleBins / blockDim.x, first = threadIdx.x * own;
  unsigned long long mine = 0;
  for (unsigned digit = first; digit < first + own; ++digit) mine += sum(digit);
  const Before before = block_before(mine);
  const unsigned long long asked = goal_of(before.total), goal = max(asked, 1ull);
  if (goal > before.total) return {kSampleBins, goal - before.total};
  if (before.mine < goal && before.mine + mine >= goal) {
    unsigned long long left = goal - before.mine;
    unsigned digit = first;
    while (sum(digit) < left) left -= sum(digit++);
    found = {digit, left};
  }
  __syncthreads();
  const FoundDigit result = found;
  __syncthreads();  // the next call writes `found`
  return result;
}

// Returns the digit that contains top-p's limit, in a row without top-k.
__device__ __forceinline__ FoundDigit top_p_digit(const SampleState& state,
                                                  const SampleRule& rule) {
  const auto mass = [&](unsigned digit) { return state.bins[digit]; };
  const auto goal = [&](unsigned long long total) { return top_p_goal(rule.top_p, total); };
  return find_digit(mass, goal);
}

// The candidates of a row, and the data that a selection among them needs.
struct SampleRow {
  SampleRule rule;
  const SampleState& state;
  SampleDistance distance;
  const SampleKey* list;  // [count] if all candidates fit into the list, otherwise null
  unsigned count;
  const float* logits;  // [V]
  std::int64_t vocabulary;
  unsigned only = kSampleBins;  // the only digit of distance to visit; kSampleBins: any

  template <class Visit>
  __device__ __forceinline__ void each(Visit visit) const {
    const auto look = [&](SampleKey key) {
      if (only == kSampleBins || distance.digit(logit_of_key(key)) == only) visit(key);
    };
    if (list != nullptr) {
      for (unsigned i = threadIdx.x; i < count; i += blockDim.x) look(list[i]);
      return;
    }
    for (std::int64_t id = threadIdx.x; id < vocabulary; id += blockDim.x) {
      const float logit = logits[id];
      if (logit > kNoLogit) look(sample_key(order_of(logit), static_cast<unsigned>(id)));
    }
  }
};

// The selection finds the k-th best token, the last token of top-p, or the drawn token.
enum class SamplePhase : int { top_k, top_p, draw };

__device__ __forceinline__ unsigned long long weight_of(const SampleRow& row, SamplePhase phase,
                                                        SampleKey key) {
  if (phase == SamplePhase::top_k) return 1;
  const float below = logit_of_key(key) - row.distance.largest;
  return mass_of(device_exp(phase == SamplePhase::top_p ? below : below / row.rule.temperature));
}

__device__ __forceinline__ unsigned long long goal_of(const SampleRule& rule, SamplePhase phase,
                                                      unsigned long long total) {
  if (phase == SamplePhase::top_k) return static_cast<unsigned>(rule.top_k);
  if (phase == SamplePhase::top_p) return top_p_goal(rule.top_p, total);
  return draw_goal(rule.random, total);
}

// The keys whose bits from bit `known` up equal those of `key`.
struct SampleRange {
  SampleKey key;
  int known;
  __device__ __forceinline__ bool holds(SampleKey other) const {
    return known == 64 || (key ^ other) >> known == 0;
  }
};

__device__ __forceinline__ bool takes_part(const SampleRow& row, SamplePhase phase, SampleKey limit,
                                           SampleKey key) {
  if (phase == SamplePhase::draw &&
      device_exp(logit_of_key(key) - row.distance.largest) < row.rule.min_p)
    return false;
  return key <= limit;
}

// Returns the digit at which the draw ends in a row without top-k. Tokens in the digit of top-p's
// limit are summed here, because only a part of these may be drawn.
__device__ __forceinline__ FoundDigit drawn_digit(SampleRow row, SampleKey limit) {
  unsigned long long rest = 0;
  if (limit != kLastKey) {
    row.only = row.distance.digit(logit_of_key(limit));
    row.each([&](SampleKey key) {
      if (!takes_part(row, SamplePhase::draw, limit, key)) return;
      rest += weight_of(row, SamplePhase::draw, key);
    });
    rest = block_sum(rest);
  }
  const auto mass = [&](unsigned digit) {
    if (digit == row.only) return rest;
    return digit < row.only ? row.state.draw_bins[digit] : 0;
  };
  const auto goal = [&](unsigned long long total) { return draw_goal(row.rule.random, total); };
  return find_digit(mass, goal);
}

// The first token, in ascending order of keys up to `limit`, at which the cumulative weight reaches
// the goal; kLastKey if none does. All threads return it.
__device__ __forceinline__ SampleKey select_key(SampleRow row, SamplePhase phase, SampleKey limit) {
  LEQ_SHARED(SampleBins, bins);
  LEQ_SHARED(unsigned[kSampleBins], counts);
  LEQ_SHARED(SampleKey, selected);
  unsigned long long goal = 0;  // 0: not computed yet
  if (row.rule.top_k <= 0) {
    const FoundDigit found =
        phase == SamplePhase::top_p ? top_p_digit(row.state, row.rule) : drawn_digit(row, limit);
    row.only = found.digit;
    goal = found.left;
  }
  SampleRange range = {0, 64};
  bool is_one = false;
  for (int shift = kFirstShift; !is_one; shift = max(shift - kSampleDigitBits, 0)) {
    bins.clear();
    for (unsigned i = threadIdx.x; i < kSampleBins; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    row.each([&](SampleKey key) {
      if (!range.holds(key) || !takes_part(row, phase, limit, key)) return;
      const unsigned digit = static_cast<unsigned>(key >> shift) % kSampleBins;
      atomicAdd(&counts[digit], 1u);
      bins.add(digit, weight_of(row, phase, key));
    });
    __syncthreads();
    const auto goal_here = [&](unsigned long long total) {
      return goal != 0 ? goal : goal_of(row.rule, phase, total);
    };
    const FoundDigit found = find_digit([&](unsigned d) { return bins.sum(d); }, goal_here);
    if (found.digit == kSampleBins) return kLastKey;
    goal = found.left;
    range = {range.key | SampleKey{found.digit} << shift, shift};
    is_one = counts[found.digit] == 1 || shift == 0;
    __syncthreads();  // the next pass writes `bins` and `counts`
  }
  row.each([&](SampleKey key) {
    if (range.holds(key) && takes_part(row, phase, limit, key)) selected = key;
  });
  __syncthreads();
  return selected;
}

constexpr int kThreads = 256;
constexpr std::int64_t kBlockTokens = 4096;  // tokens of a row that one block scans
// The last pass has one block per row, which gets the most threads if the vocabulary is large.
constexpr int kMaxDrawThreads = 1024, kFewDrawThreads = 128;
constexpr std::int64_t kLargeVocabulary = 8192;

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
  const SampleRule& rule = a.rules[blockIdx.y];
  const bool counts = rule.top_k > 0 && rule.temperature > 0;
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
  const dim3 rows = rt::grid(a.rows);
  const dim3 parts = rt::grid(div_up(a.vocabulary, kBlockTokens), a.rows);
  if (a.any_change) rt::run(stream, {"sample_change", rows, kThreads}, sample_change, a);
  rt::run(stream, {"sample_scan", parts, kThreads}, sample_scan, a);
  if (a.any_whole) rt::run(stream, {"sample_masses", parts, kThreads}, sample_masses, a);
  if (a.any_draw) rt::run(stream, {"sample_candidates", parts, kThreads}, sample_candidates, a);
  const unsigned threads = a.vocabulary > kLargeVocabulary ? kMaxDrawThreads : kFewDrawThreads;
  rt::run(stream, {"sample_draw", rows, threads}, sample_draw, a);
}

}  // namespace leq::LEQ_GPU
