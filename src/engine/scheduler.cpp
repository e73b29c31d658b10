#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace leq {
namespace {

bool goes_first(const Job* a, const Job* b) {
  const auto urgency = [](const Job& job) { return job.priority + job.waited / kPatienceSteps; };
  const std::int64_t of_a = urgency(*a), of_b = urgency(*b);
  return of_a != of_b ? of_a > of_b : a->id < b->id;
}

class Planner {
 public:
  Planner(std::span<const Job> jobs, const StepBudget& budget)
      : tokens_(budget.tokens), outputs_(budget.outputs), pages_(budget.pages), budget_(budget) {
    for (const Job& job : jobs) (job.running ? running_ : waiting_).push_back(&job);
    std::ranges::sort(running_, goes_first);
    std::ranges::sort(waiting_, goes_first);
  }

  StepPlan plan() {
    feed_writers();
    feed_prompts();
    admit();
    add_drafts();
    ensure(!plan_.feeds.empty() || !plan_.evicted.empty() || (running_.empty() && waiting_.empty()),
           "scheduler: no job fits into ", budget_.pages, " pages");
    return std::move(plan_);
  }

 private:
  void feed_writers() {
    for (std::size_t i = 0; i < running_.size() && tokens_ > 0 && outputs_ > 0; ++i) {
      const Job& job = *running_[i];
      if (!job.writes() || !make_room(i, new_pages(job, 1))) continue;
      feed(job, 1);
      someone_writes_ = true;
    }
  }

  void feed_prompts() {
    prompt_tokens_ = tokens_;
    if (someone_writes_) {
      prompt_tokens_ = std::min(tokens_, std::max<std::int64_t>(1, budget_.prompt_tokens));
    }
    for (std::size_t i = 0; i < running_.size() && prompt_tokens_ > 0; ++i) {
      const Job& job = *running_[i];
      const std::int64_t chunk = job.writes() ? 0 : chunk_of(job);
      if (chunk == 0 || !make_room(i, new_pages(job, chunk))) continue;
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
      reserved += std::max<std::int64_t>(0, job->most_pages - pages_with(*job, tokens_of(*job)));
    }
    auto in_work = static_cast<int>(running_.size());
    for (const Job* job : waiting_) {
      const std::int64_t chunk = chunk_of(*job);
      if (in_work >= budget_.sequences || chunk == 0) return;
      const std::int64_t copied = job->shares_last_page ? 1 : 0;
      const std::int64_t now = pages_with(*job, chunk) + copied;
      const std::int64_t in_all = std::max(job->most_pages + copied, now);
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
  bool make_room(std::size_t i, std::int64_t pages) {
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
  bool someone_writes_ = false;
  bool pages_ran_out_ = false;
  const StepBudget& budget_;
  std::vector<const Job*> running_, waiting_;  // in scheduling order
  StepPlan plan_;
};

}  // namespace

StepPlan plan_step(std::span<const Job> jobs, const StepBudget& budget) {
  return Planner(jobs, budget).plan();
}

double crowd_of_readers(std::span<const Job> jobs, int sequences) {
  const auto running = std::ranges::count_if(jobs, &Job::running);
  const auto writing =
      std::ranges::count_if(jobs, [](const Job& job) { return job.running && job.writes(); });
  const auto joining =
      std::max<std::int64_t>(std::min<std::int64_t>(std::ssize(jobs), sequences) - running, 0);
  const auto reading = static_cast<double>(running - writing + joining);
  return std::clamp(reading / static_cast<double>(std::max<std::int64_t>(writing, 1)), 1.0,
                    kMostCrowd);
}

}  // namespace leq
