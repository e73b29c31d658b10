// Which requests take part in the next step, and with how many tokens each: a pure function of
// numbers, without a model, a cache or a clock.
//
// In turn: every request that writes its reply gets its next token; what is left of the step goes
// to prompts, oldest first, in chunks; then waiting requests join where a sequence and pages are
// free; then drafts are tried. Where pages run out, requests that are last in order give up theirs
// and wait: their tokens are fed again later, which changes no token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_scheme.h"

namespace leq {

using RequestId = std::int64_t;  // ascending by arrival

// What is known of a request before a step.
struct Job {
  RequestId id = 0;
  int priority = 0;               // larger goes first
  std::int64_t waited = 0;        // steps that it has spent without a sequence
  bool running = false;           // has a sequence
  std::int64_t known = 0;         // tokens of prompt and reply so far
  std::int64_t fed = 0;           // of them in the cache; waiting: that would be found there
  std::int64_t drafts = 0;        // draft tokens for what comes next
  bool shares_last_page = false;  // a partial page that others hold: it is copied when it grows
  std::int64_t pages = 0;         // that hold what is fed of it
  std::int64_t most_pages = 0;    // that all known tokens and the next may take at once
  std::int64_t own_pages = 0;     // held by no other running job: what evicting it frees
  std::int64_t mark = 0;          // a position after `fed` at which a step is to end; 0: none

  // One known token is left to be fed: its next one is drawn then.
  bool writes() const { return known - fed == 1; }
};

struct StepBudget {
  int sequences = 1;          // requests in work at once
  std::int64_t tokens = 512;  // in one step
  // Of prompts, where others wait for their next token in the same step: bounds the time between
  // two tokens. At least one.
  std::int64_t prompt_tokens = 512;
  std::int64_t outputs = 1;  // rows of logits in one step
  std::int64_t pages = 0;    // held by no running job
};

struct Feed {
  RequestId id = 0;
  std::int64_t tokens = 0;  // the next known ones
  std::int64_t drafts = 0;  // after them
  bool draws = false;       // its last known token is among them: a token can be drawn
};

struct StepPlan {
  std::vector<RequestId> evicted;  // give up sequence and pages, before the others are fed
  std::vector<Feed> feeds;         // those that were waiting take a sequence first
};

// Waiting jobs gain a priority for each so many steps: no job waits forever.
inline constexpr std::int64_t kPatienceSteps = 256;

// `jobs` in any order, each with known > fed. Every part has a token at least. Somebody is fed or
// evicted where there is a job at all, if each of them alone fits into all pages.
StepPlan plan_step(std::span<const Job> jobs, const StepBudget& budget);

// How many times as many requests read their prompts, or could with these sequences, as write:
// from 1 to kMostCrowd. A prompt holds each writer up; where readers are many that spares many what
// it costs few, and the batch is full sooner.
double crowd_of_readers(std::span<const Job> jobs, int sequences);
inline constexpr double kMostCrowd = 4;

}  // namespace leq
