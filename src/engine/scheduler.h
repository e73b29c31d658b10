// Selects the requests of the next step and the number of tokens of each: a pure function of
// numbers, which uses no model, cache or clock.
//
// First, every request that is generating gets its next token. Then chunks of prompts are added,
// oldest first, until the step is full. Then waiting requests are admitted if a sequence and pages
// are free, and draft tokens are added. If too few pages are free, the last requests in order are
// evicted: their tokens are fed again later, which does not change the replies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_scheme.h"

namespace leq {

using RequestId = std::int64_t;  // ascending in order of arrival

// State of a request before a step.
struct Job {
  RequestId id = 0;
  int priority = 0;               // jobs with higher priority come first
  std::int64_t waited = 0;        // steps spent waiting for a sequence
  bool running = false;           // it has a sequence
  std::int64_t known = 0;         // tokens of prompt and reply so far
  std::int64_t fed = 0;           // tokens in the cache; for a waiting job: in the prefix cache
  std::int64_t drafts = 0;        // draft tokens after the known tokens
  bool shares_last_page = false;  // the partial last page is shared: it is copied before it grows
  std::int64_t pages = 0;         // pages that hold the fed tokens
  std::int64_t most_pages = 0;    // pages for all known tokens and the next one
  std::int64_t own_pages = 0;     // pages held by no other running job: eviction frees these
  std::int64_t mark = 0;          // position after `fed` where a step must end; 0: none

  // Whether only the last known token is not fed yet: its logits give the next token.
  bool writes() const { return known - fed == 1; }
};

struct StepBudget {
  int sequences = 1;          // requests that may run at once
  std::int64_t tokens = 512;  // rows in one step
  // Limit on the prompt tokens of a step in which other requests draw a token. It bounds the time
  // between two tokens. At least one.
  std::int64_t prompt_tokens = 512;
  std::int64_t outputs = 1;  // rows of logits in one step
  std::int64_t pages = 0;    // pages held by no running job
};

struct Feed {
  RequestId id = 0;
  std::int64_t tokens = 0;  // known tokens to feed
  std::int64_t drafts = 0;  // draft tokens to feed after the known tokens
  bool draws = false;       // the last known token is fed, so a token can be drawn
};

struct StepPlan {
  std::vector<RequestId> evicted;  // to release before anything is fed
  std::vector<Feed> feeds;         // waiting jobs first get a sequence
};

// The priority of a waiting job rises by one every so many steps, so that no job starves.
inline constexpr std::int64_t kPatienceSteps = 256;

// `jobs` may be in any order; each has known > fed. Every feed has at least one token. If there are
// jobs, at least one is fed or evicted, provided that each of them alone fits into all pages.
StepPlan plan_step(std::span<const Job> jobs, const StepBudget& budget);

// (Requests that read their prompts, or could do so with `sequences`) / (requests that generate),
// clamped to 1 ... kMostCrowd. A prompt delays every request that generates. The more requests
// read prompts, the more of them profit from the delay, and the sooner the batch is full.
double crowd_of_readers(std::span<const Job> jobs, int sequences);
inline constexpr double kMostCrowd = 4;

}  // namespace leq
