// Selects the requests of the next step and the number of tokens of each: a pure function of
// numbers, without a model, a cache or a clock.
//
// In order: every request that is generating gets its next token; the rest of the step is filled
// with chunks of prompts, oldest first; then waiting requests are admitted where a sequence and
// pages are free; then draft tokens are added. Where pages run out, the last requests in order are
// evicted: their tokens are fed again later, which changes no token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_scheme.h"

namespace leq {

using RequestId = std::int64_t;  // ascending by arrival

// State of a request before a step.
struct Job {
  RequestId id = 0;
  int priority = 0;               // higher is served first
  std::int64_t waited = 0;        // steps spent without a sequence
  bool running = false;           // has a sequence
  std::int64_t known = 0;         // tokens of prompt and reply so far
  std::int64_t fed = 0;           // tokens in the cache; waiting: that the cache would provide
  std::int64_t drafts = 0;        // draft tokens for what comes next
  bool shares_last_page = false;  // the partial last page has other holders: copied before it grows
  std::int64_t pages = 0;         // that hold the fed tokens
  std::int64_t most_pages = 0;    // the most that all known tokens and the next one need
  std::int64_t own_pages = 0;     // held by no other running job: what evicting it frees
  std::int64_t mark = 0;          // a position after `fed` at which a step must end; 0: none

  // Only the last known token is not fed yet: feeding it gives the next one.
  bool writes() const { return known - fed == 1; }
};

struct StepBudget {
  int sequences = 1;          // requests running at once
  std::int64_t tokens = 512;  // in one step
  // Most prompt tokens of a step in which other requests draw a token: bounds the time between two
  // tokens. At least one.
  std::int64_t prompt_tokens = 512;
  std::int64_t outputs = 1;  // rows of logits in one step
  std::int64_t pages = 0;    // held by no running job
};

struct Feed {
  RequestId id = 0;
  std::int64_t tokens = 0;  // known tokens to feed
  std::int64_t drafts = 0;  // draft tokens to feed after them
  bool draws = false;       // its last known token is fed: a token can be drawn
};

struct StepPlan {
  std::vector<RequestId> evicted;  // release sequence and pages before anything is fed
  std::vector<Feed> feeds;         // waiting ones take a sequence first
};

// The priority of a waiting job rises by one after this many steps: no job starves.
inline constexpr std::int64_t kPatienceSteps = 256;

// `jobs` in any order, each with known > fed. Every feed has at least one token. At least one job
// is fed or evicted if there are any, provided that each of them alone fits into all pages.
StepPlan plan_step(std::span<const Job> jobs, const StepBudget& budget);

// Ratio of requests that read their prompts, or could with `sequences`, to those that generate,
// clamped to 1 ... kMostPromptsPerWriter. A prompt delays every generating request; the more requests are
// reading, the more of them profit from the delay of a few, and the sooner the batch is full.
double prompts_per_writer(std::span<const Job> jobs, int sequences);
inline constexpr double kMostPromptsPerWriter = 4;

}  // namespace leq
