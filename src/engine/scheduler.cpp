#include "engine/scheduler.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace leq {
namespace {

// Weight of a new value in the moving mean if it is lower, and if it is higher. Lower values have
// more weight, because other load on the machine makes steps slower and never faster.
constexpr double kLessShare = 0.3;
constexpr double kMoreShare = 0.05;
constexpr double kOutlier = 4;  // times this much above the mean are clipped, because of other load
// Factor on the weight in a size's cost for each step of another size: the expected cost falls with
// the belief, until steps of that size are tried and measured again.
constexpr double kWeightDecay = 0.999;
constexpr double kLeastWeight = 0.5;    // if weight is below this, the mean starts anew
constexpr std::int64_t kUnclipped = 3;  // measurements before outliers are clipped
// Weight of a new value in the mean cost of a prompt token; the same for lower and higher values.
constexpr double kMixedShare = 0.25;

// Size class of a number of rows, and the largest number of rows of a class.
std::size_t size_of(std::int64_t rows) {
  return static_cast<std::size_t>(
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 1) - 1)));
}
double rows_of(std::size_t size) { return static_cast<double>(std::int64_t{1} << size); }

}  // namespace

void StepCosts::SizeCost::add(double value) {
  if (weight < kLeastWeight) times = 0;
  weight = 1;
  if (times >= kUnclipped && value > kOutlier * seconds) value = kOutlier * seconds;
  ++times;
  // The first steps of a size include page faults, so that a faster step replaces the mean.
  const double usual = value < seconds ? kLessShare : kMoreShare;
  const double share = times <= kUnclipped && value < seconds ? 1 : usual;
  if (times == 1) seconds = value;
  seconds += share * (value - seconds);
}

void StepCosts::record(std::int64_t outputs, std::int64_t prompt_tokens, double seconds) {
  if (prompt_tokens == 0) {
    const std::size_t size = std::min(size_of(outputs), kSizes - 1);
    of_size_[size].add(seconds);
    for (std::size_t other = 0; other < kSizes; ++other) {
      if (other != size) of_size_[other].weight *= kWeightDecay;
    }
    return;
  }
  // A step with few prompt tokens is skipped, because their cost is below the measurement noise.
  if (outputs == 0 || prompt_tokens < kFewest / 2) return;
  const double each = std::max(0.0, seconds - seconds_without_prompts(outputs)) /
                      static_cast<double>(prompt_tokens);
  mixed_token_ = mixed_tokens_ == 0 ? each : std::lerp(mixed_token_, each, kMixedShare);
  mixed_tokens_ = prompt_tokens;
  if (prompt_tokens <= kFewest) few_tokens_seconds_ = seconds;
}

double StepCosts::seconds_without_prompts(std::int64_t outputs) const {
  const double known = seconds(outputs);
  return known > 0 ? known : few_tokens_seconds_;
}

double StepCosts::seconds(std::int64_t outputs) const {
  const std::size_t size = std::min(size_of(outputs), kSizes - 1);
  if (of_size_[size].times > 0) {
    // The estimate is at most the time of any step that has more rows.
    double least = of_size_[size].weighted();
    for (std::size_t above = size + 1; above < kSizes; ++above) {
      if (of_size_[above].times > 0) least = std::min(least, of_size_[above].weighted());
    }
    return least;
  }
  std::size_t below = size, above = size;
  while (below > 0 && of_size_[below].times == 0) --below;
  while (above + 1 < kSizes && of_size_[above].times == 0) ++above;
  const bool has_below = of_size_[below].times > 0, has_above = of_size_[above].times > 0;
  if (has_below && has_above) {
    const double along = (rows_of(size) - rows_of(below)) / (rows_of(above) - rows_of(below));
    return std::lerp(of_size_[below].weighted(), of_size_[above].weighted(), along);
  }
  if (has_below) return of_size_[below].weighted();
  return has_above ? of_size_[above].weighted() : 0;
}

std::int64_t StepCosts::prompt_tokens_within(double factor, std::int64_t outputs) const {
  const double budget = (factor - 1) * seconds_without_prompts(outputs);
  if (budget <= 0) return kFewest;
  const std::int64_t most = std::max(kFewest, 2 * mixed_tokens_);
  if (budget >= mixed_token_ * static_cast<double>(most)) return most;
  return std::max(kFewest, static_cast<std::int64_t>(budget / mixed_token_));
}

namespace {

bool precedes(const Job* a, const Job* b) {
  const auto urgency = [](const Job& job) { return job.priority + job.waited / kAgingSteps; };
  const std::int64_t of_a = urgency(*a), of_b = urgency(*b);
  return of_a != of_b ? of_a > of_b : a->id < b->id;
}

class Planner {
 public:
  Planner(std::span<const Job> jobs, const StepBudget& budget)
      : tokens_(budget.tokens), outputs_(budget.outputs), pages_(budget.pages), budget_(budget) {
    for (const Job& job : jobs) (job.running ? running_ : waiting_).push_back(&job);
    std::ranges::sort(running_, precedes);
    std::ranges::sort(waiting_, precedes);
  }

  StepPlan plan() {
    decode();
    prefill();
    admit();
    add_drafts();
    const auto& first = running_.empty() ? waiting_ : running_;
    if (plan_.feeds.empty() && plan_.evicted.empty() && !first.empty()) {
      plan_.unfit = first.front()->id;
    }
    return std::move(plan_);
  }

 private:
  void decode() {
    for (std::size_t i = 0; i < running_.size() && tokens_ > 0 && outputs_ > 0; ++i) {
      const Job& job = *running_[i];
      if (!job.writes() || !reserve_pages(i, new_pages(job, 1))) continue;
      feed(job, 1);
      any_writes_ = true;
    }
  }

  void prefill() {
    prompt_tokens_ = tokens_;
    if (any_writes_) {
      prompt_tokens_ = std::min(tokens_, std::max<std::int64_t>(1, budget_.prompt_tokens));
    }
    for (std::size_t i = 0; i < running_.size() && prompt_tokens_ > 0; ++i) {
      const Job& job = *running_[i];
      const std::int64_t chunk = job.writes() ? 0 : chunk_of(job);
      if (chunk == 0 || !reserve_pages(i, new_pages(job, chunk))) continue;
      feed(job, chunk);
      prompt_tokens_ -= chunk;
    }
  }

  // Admits jobs strictly in order, each with enough pages for all its known tokens and the next
  // one. No smaller request overtakes the first request in the queue.
  void admit() {
    if (pages_ran_out_) return;
    std::int64_t reserved = 0;  // free pages that running jobs will still need
    for (const Job* job : running_) {
      reserved += std::max<std::int64_t>(0, job->max_pages - pages_with(*job, tokens_of(*job)));
    }
    auto in_work = static_cast<int>(running_.size());
    for (const Job* job : waiting_) {
      const std::int64_t chunk = chunk_of(*job);
      if (in_work >= budget_.sequences || chunk == 0) return;
      const std::int64_t copied = job->shares_last_page ? 1 : 0;
      const std::int64_t now = pages_with(*job, chunk) + copied;
      const std::int64_t in_all = std::max(job->max_pages + copied, now);
      if (now > pages_ || (in_work > 0 && in_all > pages_ - reserved)) return;
      feed(*job, chunk);
      prompt_tokens_ -= chunk;
      pages_ -= now;
      reserved += in_all - now;
      ++in_work;
    }
  }

  // Draft tokens use only rows of the batch that are left free by all other tokens.
  void add_drafts() {
    if (pages_ran_out_) return;
    for (const Job* job : running_) {
      Feed* feed = feed_of(*job);
      if (feed == nullptr || !feed->draws) continue;
      const std::int64_t length = job->fed + feed->tokens;
      const std::int64_t fitting = (pages_for(length) + pages_) * kPageTokens - length;
      feed->drafts = std::min({job->drafts, tokens_, outputs_, fitting});
      tokens_ -= feed->drafts;
      outputs_ -= feed->drafts;
      pages_ -= pages_for(length + feed->drafts) - pages_for(length);
    }
  }

  // In models with fixed states, a GPU computes positions 64 p to 64 p + 63 in one pass if one step
  // feeds all of them. Chunks end at page boundaries, so that results do not depend on the batch.
  static std::int64_t whole_pages(std::int64_t fed, std::int64_t tokens) {
    const std::int64_t aligned = (fed + tokens) / kPageTokens * kPageTokens - fed;
    return aligned > 0 ? aligned : tokens;
  }

  // If no row of logits is left, a job does not feed its last token in this step.
  std::int64_t chunk_of(const Job& job) const {
    const std::int64_t rest = job.known - job.fed;
    const std::int64_t to_mark = job.mark > job.fed ? job.mark - job.fed : rest;
    std::int64_t chunk = std::min({rest, prompt_tokens_, tokens_, to_mark});
    if (job.mark > job.fed && chunk < to_mark) chunk = whole_pages(job.fed, chunk);
    return chunk == rest && outputs_ == 0 ? chunk - 1 : chunk;
  }

  // Number of pages for the job's fed tokens and `tokens` more.
  static std::int64_t pages_with(const Job& job, std::int64_t tokens) {
    return job.pages + pages_for(job.fed + tokens) - pages_for(job.fed);
  }

  static std::int64_t new_pages(const Job& job, std::int64_t tokens) {
    return pages_for(job.fed + tokens) - pages_for(job.fed) + (job.shares_last_page ? 1 : 0);
  }

  Feed* feed_of(const Job& job) {
    const auto feed = std::ranges::find(plan_.feeds, job.id, &Feed::id);
    return feed == plan_.feeds.end() ? nullptr : &*feed;
  }
  std::int64_t tokens_of(const Job& job) {
    const Feed* feed = feed_of(job);
    return feed == nullptr ? 0 : feed->tokens;
  }

  // Reserves pages for running_[i]. If too few are free, evicts later jobs that have no feed in
  // this step, the last job first. If too few pages are free even then, returns false: no feed.
  bool reserve_pages(std::size_t i, std::int64_t pages) {
    for (std::size_t last = running_.size(); pages > pages_ && --last > i;) {
      const Job& victim = *running_[last];
      if (feed_of(victim) != nullptr) continue;
      pages_ += victim.own_pages;
      plan_.evicted.push_back(victim.id);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(last));
      pages_ran_out_ = true;
    }
    if (pages > pages_) {
      pages_ran_out_ = true;
      return false;
    }
    pages_ -= pages;
    return true;
  }

  void feed(const Job& job, std::int64_t tokens) {
    const bool draws = job.fed + tokens == job.known;
    plan_.feeds.push_back({job.id, tokens, 0, draws});
    tokens_ -= tokens;
    if (draws) --outputs_;
  }

  std::int64_t tokens_, outputs_, pages_;  // left in this step
  std::int64_t prompt_tokens_ = 0;
  bool any_writes_ = false;
  bool pages_ran_out_ = false;
  const StepBudget& budget_;
  std::vector<const Job*> running_, waiting_;  // in scheduling order
  StepPlan plan_;
};

}  // namespace

StepPlan plan_step(std::span<const Job> jobs, const StepBudget& budget) {
  return Planner(jobs, budget).plan();
}

double prompts_per_writer(std::span<const Job> jobs, int sequences) {
  const auto running = std::ranges::count_if(jobs, &Job::running);
  const auto writing =
      std::ranges::count_if(jobs, [](const Job& job) { return job.running && job.writes(); });
  const auto joining =
      std::max<std::int64_t>(std::min<std::int64_t>(std::ssize(jobs), sequences) - running, 0);
  const auto reading = static_cast<double>(running - writing + joining);
  return std::clamp(reading / static_cast<double>(std::max<std::int64_t>(writing, 1)), 1.0,
                    kMaxPromptsPerWriter);
}

}  // namespace leq
