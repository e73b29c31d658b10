// The host's interface to sampling on the device, which converts rows of logits to tokens without a
// copy of the logits to the host. The arithmetic is that of sampling/sample.h, except for the cuts
// of draws_on_host(), which the host computes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernels/launch.h"
#include "sampling/sample.h"

namespace leq::LEQ_GPU {

// The first pass counts tokens in bins, by this many leading bits of their keys.
inline constexpr int kSampleDigitBits = 11;
inline constexpr int kSampleBins = 1 << kSampleDigitBits;
// Capacity of a row's list of candidates. If a row has more, one block reads them again from the
// logits; this happens with a large top_k, or if many logits are equal or nearly equal.
inline constexpr unsigned kMaxCandidates = 4096;

// State of a row between the passes; it is zeroed before the first pass.
struct SampleState {
  unsigned long long best;  // ~key of the best token; 0 if every token is banned
  unsigned bad;             // ~id of the first logit that is NaN or +infinity; 0 if none
  unsigned candidates;      // number of candidates, may exceed kMaxCandidates
  // With top-k: number of tokens by the first digit of their keys. Without top-k: masses of tokens
  // at temperature 1 by distance from the best token, for top-p.
  unsigned long long bins[kSampleBins];
  // Without top-k: masses for the draw, by distance, of the tokens that pass min-p.
  unsigned long long draw_bins[kSampleBins];
};

struct SampleArguments {
  FloatRows logits;  // [rows][V]; changed during the call and then restored
  std::int64_t vocabulary = 0;
  int rows = 0;
  const SampleRule* rules = nullptr;          // [rows]
  const LogitChange* changes = nullptr;       // changes of all rows, concatenated
  const std::int32_t* change_ends = nullptr;  // [rows + 1]; row r: [change_ends[r], ...[r + 1])
  float* saved = nullptr;                     // [changes]; the logits before the changes
  SampleState* states = nullptr;              // [rows]
  unsigned long long* candidates = nullptr;   // [rows][kMaxCandidates] keys, unordered
  std::int32_t* drawn = nullptr;              // [rows]; results as of HostSampler::draw
  bool any_change = false;
  bool any_draw = false;   // some row has a temperature other than 0
  bool any_whole = false;  // some row draws with top_k <= 0
};
void launch_sample(const SampleArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
