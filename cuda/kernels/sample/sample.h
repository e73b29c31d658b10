// Host interface of sampling on the device: rows of logits become tokens without a copy to the
// host. The arithmetic is that of backend/sample.h, except for the cuts of draws_on_host(), which
// the host computes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/sample.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// Leading bits of a key by which the first pass counts tokens in bins.
inline constexpr int kSampleDigitBits = 11;
inline constexpr int kSampleBins = 1 << kSampleDigitBits;
// Tokens of a row that are kept in a list; rows with more are read again from their logits, by one
// block: with a large top_k, or where many logits are equal or nearly equal.
inline constexpr unsigned kMostCandidates = 4096;

// State of a row between the passes; zeros before the first.
struct SampleState {
  unsigned long long best;  // ~key of the best token, 0: every token is banned
  unsigned bad;             // ~id of the first logit that is NaN or +infinity, 0: none
  unsigned candidates;      // also those beyond kMostCandidates
  // With top-k: tokens by the first digit of their keys. Without: their masses at temperature 1 by
  // distance from the best, for top-p.
  unsigned long long bins[kSampleBins];
  // Without top-k: masses for the draw by distance, of the tokens that pass min-p.
  unsigned long long draw_bins[kSampleBins];
};

struct SampleArguments {
  FloatRows logits;  // [rows][V]; changed, and put back
  std::int64_t vocabulary = 0;
  int rows = 0;
  const SampleRule* rules = nullptr;          // [rows]
  const LogitChange* changes = nullptr;       // of all rows, one after the other
  const std::int32_t* change_ends = nullptr;  // [rows + 1]: row r has [change_ends[r], [r + 1])
  float* saved = nullptr;                     // [changes]: what the logits were
  SampleState* states = nullptr;              // [rows]
  unsigned long long* candidates = nullptr;   // [rows][kMostCandidates] keys, in any order
  std::int32_t* drawn = nullptr;              // [rows], as HostSampler::draw gives them
  bool any_change = false;
  bool any_draw = false;   // some temperature is not 0
  bool any_whole = false;  // some of them beside a top_k of 0 or less
};
void launch_sample(const SampleArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
