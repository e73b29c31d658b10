// Which rows of which requests the next step computes, within limits learned from the durations of
// earlier steps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/kv_types.h"

namespace leq {

// Durations of steps on this machine, learned from the steps themselves. They limit the prompt
// tokens and draft tokens of a step, so that they affect the speed but never a token.
class StepCosts {
 public:
  // Records the duration of a step with `outputs` rows that have logits (next tokens and drafts)
  // and `prompt_tokens` other rows.
  void record(std::int64_t outputs, std::int64_t prompt_tokens, double seconds);

  // Seconds of a step without prompts: measured, or interpolated between measured sizes. For larger
  // sizes it is the time of the largest measured size. Costs measured long ago are reduced, so that
  // such steps are tried (again). 0 if nothing was measured.
  double seconds(std::int64_t outputs) const;

  // The number of prompt tokens that a step with `outputs` other rows can add if it may take
  // `factor` times as long as without them. It is based on earlier mixed steps, is at least
  // kFewest, also before the first measurement, and at most twice the last number, because the cost
  // of a row may grow with the number of rows.
  std::int64_t prompt_tokens_within(double factor, std::int64_t outputs) const;
  static constexpr std::int64_t kFewest = 16;

 private:
  struct SizeCost {
    double seconds = 0;  // moving mean of a step's duration
    double weight = 1;   // trust in the mean; falls with steps of other sizes
    std::int64_t times = 0;
    double weighted() const { return weight * seconds; }
    void add(double value);
  };
  static constexpr std::size_t kSizes = 14;  // for 1, 2, 3-4, 5-8, 9-16 ... rows
  // Like seconds(), but if no step was without prompts, the time of a step with few prompt tokens.
  double seconds_without_prompts(std::int64_t outputs) const;

  std::array<SizeCost, kSizes> of_size_ = {};
  double few_tokens_seconds_ = 0;  // time of the last step with few prompt tokens
  double mixed_token_ = 0;         // seconds of one prompt token, a moving mean
  std::int64_t mixed_tokens_ = 0;  // prompt tokens of the last mixed step
};

// Selects the requests of the next step and the number of tokens of each: a pure function of
// numbers, which uses no model, cache or clock.
//
// First, every request that is generating gets its next token. Then chunks of prompts are added,
// oldest first, until the step is full. Then waiting requests are admitted if a sequence and pages
// are free, and draft tokens are added. If too few pages are free, the last requests in order are
// evicted: their tokens are computed again later, which does not change the replies.

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
  std::int64_t max_pages = 0;     // pages for all known tokens and the next one
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
  std::optional<RequestId> unfit;  // the first job, if it does not fit and nothing else is planned
};

// The priority of a waiting job rises by one every so many steps, so that no job starves.
inline constexpr std::int64_t kAgingSteps = 256;

// `jobs` may be in any order; each has known > fed. Every feed has at least one token. If there are
// jobs, at least one is fed, evicted or unfit; none is unfit if each alone fits into all pages.
StepPlan plan_step(std::span<const Job> jobs, const StepBudget& budget);

// (Requests that read their prompts, or could do so with `sequences`) / (requests that generate),
// clamped to 1 ... kMaxPromptsPerWriter. A prompt delays every request that generates. The more
// requests read prompts, the more of them profit from the delay, and the sooner the batch is full.
double prompts_per_writer(std::span<const Job> jobs, int sequences);
inline constexpr double kMaxPromptsPerWriter = 4;

}  // namespace leq
