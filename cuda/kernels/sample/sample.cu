// Sampling in three passes: many blocks look over a row, many blocks list its candidates, one block
// a row draws. Greedy rows need no list.
#include "cuda/words/run.h"
#include "cuda/kernels/sample/sample_select.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlockTokens = 4096;  // of a row, for one block
// The last pass: one block a row, so as many threads as there are where a vocabulary is large.
constexpr int kMostDrawThreads = 1024, kFewDrawThreads = 128;
constexpr std::int64_t kLargeVocabulary = 8192;

__device__ __forceinline__ bool keeps_k(const SampleRule& rule) {
  return rule.top_k > 0 && rule.temperature > 0;
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
    // What is no logit stays, for the next pass to find.
    if (logit <= kLargestLogit) logits[change.id] = changed_logit(logit, rule, change);
  }
}

// The best token, the first bad logit, and for top-k how many tokens have which first digit.
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
    if (bins[i] != 0) atomicAdd(&state.bins[i], bins[i]);
  }
}

// The first digit of the k-th best token; of all tokens where there are not so many.
__device__ unsigned last_digit(const SampleState& state, unsigned k) {
  LEQ_SHARED(unsigned, last);
  constexpr int kOwn = kSampleBins / kThreads;
  const unsigned first = threadIdx.x * kOwn;
  unsigned mine = 0;
  for (unsigned digit = first; digit < first + kOwn; ++digit) mine += state.bins[digit];
  if (threadIdx.x == 0) last = kSampleBins - 1;
  const unsigned long long before = block_before(mine).mine;
  if (before < k && before + mine >= k) {
    unsigned digit = first;
    for (unsigned long long sum = before + state.bins[digit]; sum < k;) sum += state.bins[++digit];
    last = digit;
  }
  __syncthreads();
  return last;
}

// With top-k: all tokens whose first digit is no worse than the k-th one's. Without: those of
// enough weight; top-p wants to know the mass of the others.
__global__ void __launch_bounds__(kThreads)
    sample_candidates(const LEQ_GRID_CONSTANT SampleArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_SHARED(unsigned, place);
  const float* logits = row_of(a, blockIdx.y);
  SampleState& state = a.states[blockIdx.y];
  const SampleRule& rule = a.rules[blockIdx.y];
  if (rule.temperature == 0 || state.best == 0 || state.bad != 0) return;
  const bool by_k = keeps_k(rule);
  const unsigned last = by_k ? last_digit(state, static_cast<unsigned>(rule.top_k)) : 0;
  const float largest = logit_of_key(~state.best), least = least_weight(rule);
  const std::int64_t first = blockIdx.x * kBlockTokens;
  const std::int64_t end = min(first + kBlockTokens, a.vocabulary);
  const auto is_candidate = [&](float logit) {
    if (by_k) return order_of(logit) >> (32 - kSampleDigitBits) <= last && logit > kNoLogit;
    return logit > kNoLogit && device_exp(logit - largest) >= least;
  };
  unsigned mine = 0;
  unsigned long long dropped = 0;
  for (std::int64_t id = first + threadIdx.x; id < end; id += kThreads) {
    const float logit = logits[id];
    if (is_candidate(logit))
      ++mine;
    else if (!by_k)
      dropped += mass_of(device_exp(logit - largest));
  }
  dropped = block_sum(dropped);
  const Before before = block_before(mine);
  if (threadIdx.x == 0) {
    if (dropped != 0) atomicAdd(&state.dropped, dropped);
    place = atomicAdd(&state.candidates, static_cast<unsigned>(before.total));
  }
  __syncthreads();
  unsigned at = place + static_cast<unsigned>(before.mine);
  SampleKey* list = a.candidates + blockIdx.y * static_cast<std::size_t>(kMostCandidates);
  for (std::int64_t id = first + threadIdx.x; id < end && at < kMostCandidates; id += kThreads) {
    const float logit = logits[id];
    if (is_candidate(logit)) list[at++] = sample_key(order_of(logit), static_cast<unsigned>(id));
  }
}

// The token of a row that has one and is not greedy.
__device__ unsigned draw(const SampleRow& row) {
  LEQ_SHARED(SampleBins, bins);
  LEQ_SHARED(unsigned, drawn);
  SampleKey limit = kLastKey;
  if (row.rule.top_k > 0) {
    const SampleRange range = select_key(row, SamplePhase::top_k, limit, bins);
    if (range.known < 64) limit = range.last();
  }
  if (row.rule.top_p < 1) {
    const SampleRange range = select_key(row, SamplePhase::top_p, limit, bins);
    if (range.known < 64) limit = min(limit, range.last());
  }
  const SampleRange range = select_key(row, SamplePhase::draw, limit, bins);
  row.each([&](SampleKey key) {
    if (range.holds(key) && takes_part(row, SamplePhase::draw, limit, key)) {
      drawn = static_cast<unsigned>(key);
    }
  });
  __syncthreads();
  return drawn;
}

__global__ void __launch_bounds__(kMostDrawThreads)
    sample_draw(const LEQ_GRID_CONSTANT SampleArguments a) {
  LEQ_BOUNDS(kMostDrawThreads);
  float* logits = row_of(a, blockIdx.x);
  const SampleState& state = a.states[blockIdx.x];
  const SampleRule rule = a.rules[blockIdx.x];
  std::int32_t drawn = static_cast<std::int32_t>(~state.best);
  if (state.bad != 0) {
    drawn = bad_logit_of(static_cast<std::int32_t>(~state.bad));
  } else if (state.best == 0) {
    drawn = kAllBanned;
  } else if (rule.temperature > 0) {
    const bool listed = state.candidates <= kMostCandidates;
    const SampleKey* list = a.candidates + blockIdx.x * static_cast<std::size_t>(kMostCandidates);
    drawn = static_cast<std::int32_t>(
        draw({rule, logit_of_key(~state.best), listed ? list : nullptr, state.candidates, logits,
              a.vocabulary, listed ? state.dropped : 0}));
  }
  if (threadIdx.x == 0) a.drawn[blockIdx.x] = drawn;
  if (!a.any_change) return;
  __syncthreads();  // no thread reads logits any more
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
  if (a.any_draw) {
    rt::run(stream, {"sample_candidates", parts, dim3(kThreads)}, sample_candidates, a);
  }
  const unsigned threads = a.vocabulary > kLargeVocabulary ? kMostDrawThreads : kFewDrawThreads;
  rt::run(stream, {"sample_draw", dim3(rows), dim3(threads)}, sample_draw, a);
}

}  // namespace leq::LEQ_GPU
