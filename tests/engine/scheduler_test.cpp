// The scheduler without a model: random schedules checked against the rules in its header, and
// small schedules written by hand.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/kv_types.h"
#include "base/random.h"

namespace leq {
namespace {

std::int64_t pages_of(std::int64_t positions) {
  return (positions + kPageTokens - 1) / kPageTokens;
}

const Feed* feed_of(const StepPlan& plan, RequestId id) {
  const auto found = std::ranges::find(plan.feeds, id, &Feed::id);
  return found == plan.feeds.end() ? nullptr : &*found;
}

// A request of a simulated engine: its prompt is fed, then it generates `reply` tokens.
struct Simulated {
  Job job;
  std::int64_t end = 0;  // number of known tokens at which it is done
};

class Simulation {
 public:
  // After each step, pages older than the newest `kept` positions are released; `kept` = 0: none.
  Simulation(std::uint64_t seed, StepBudget budget, std::int64_t pool, std::int64_t kept)
      : random_(seed), budget_(budget), pool_(pool), kept_(kept) {}

  void add(int priority, std::int64_t prompt, std::int64_t reply) {
    Simulated one;
    one.job.id = next_id_++;
    one.job.priority = priority;
    one.job.known = prompt;
    one.end = prompt + reply;
    one.job.waited = below(4) * kAgingSteps;
    all_[one.job.id] = one;
  }

  bool done() const { return all_.empty(); }

  void step() {
    std::vector<Job> jobs;
    for (auto& [id, one] : all_) {
      one.job.drafts = std::min<std::int64_t>(below(5), one.end - one.job.known);
      one.job.pages = one.job.own_pages = held_by(one.job);
      one.job.max_pages = max_pages(one.job.known + 1);
      jobs.push_back(one.job);
    }
    for (std::size_t i = jobs.size(); i > 1; --i)
      std::swap(jobs[i - 1], jobs[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
    StepBudget budget = budget_;
    budget.pages = pool_ - held();
    const StepPlan plan = plan_step(jobs, budget);
    check_and_apply(plan, budget);
  }

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_.uniform() * static_cast<double>(n)) % n;
  }

 private:
  std::int64_t held() const {
    std::int64_t pages = 0;
    for (const auto& [id, one] : all_) pages += held_by(one.job);
    return pages;
  }
  std::int64_t held_by(const Job& job) const {
    if (!job.running) return 0;
    const std::int64_t left = kept_ == 0 ? 0 : std::max<std::int64_t>(0, job.fed - kept_);
    return pages_of(job.fed) - left / kPageTokens;
  }
  std::int64_t max_pages(std::int64_t positions) const {
    const std::int64_t all = pages_of(positions);
    return kept_ == 0 ? all : std::min(all, pages_of(kept_) + 1 + pages_of(budget_.tokens));
  }

  // An admitted request must have pages for its known tokens and the next one, in addition to those
  // of all running requests, unless it runs alone; and it must not overtake a waiting request.
  void check_admissions(const StepPlan& plan) {
    std::int64_t in_work = 0, wanted = 0;
    bool admits = false;
    const auto urgency = [](const Job& job) { return job.priority + job.waited / kAgingSteps; };
    for (const auto& [id, one] : all_) {
      const Job& job = one.job;
      const bool comes = !job.running && feed_of(plan, id) != nullptr;
      const bool stays = job.running && std::ranges::count(plan.evicted, id) == 0;
      if (!comes && !stays) continue;
      ++in_work;
      wanted += max_pages(job.known + 1);
      admits = admits || comes;
      if (!comes) continue;
      for (const auto& [other_id, other] : all_) {
        if (other.job.running || feed_of(plan, other_id) != nullptr) continue;
        const std::int64_t of_other = urgency(other.job), own = urgency(job);
        ASSERT_TRUE(of_other < own || (of_other == own && other_id > id));
      }
    }
    if (admits && in_work > 1) {
      ASSERT_LE(wanted, pool_);
    }
  }

  // All planned rows, including drafts that will be rejected, must fit in the free pages.
  void check_pages(const StepPlan& plan, const StepBudget& budget) {
    std::int64_t free = budget.pages;
    for (const RequestId id : plan.evicted) free += all_.at(id).job.own_pages;
    for (const Feed& feed : plan.feeds) {
      const std::int64_t fed = all_.at(feed.id).job.fed;
      free -= pages_of(fed + feed.tokens + feed.drafts) - pages_of(fed);
    }
    ASSERT_GE(free, 0);
  }

  void check_and_apply(const StepPlan& plan, const StepBudget& budget) {
    ASSERT_TRUE(!plan.feeds.empty() || !plan.evicted.empty());
    ASSERT_NO_FATAL_FAILURE(check_admissions(plan));
    ASSERT_NO_FATAL_FAILURE(check_pages(plan, budget));
    std::int64_t tokens = 0, outputs = 0, prompt_tokens = 0;
    bool someone_writes = false;
    std::set<RequestId> seen;
    for (const RequestId id : plan.evicted) {
      Simulated& one = all_.at(id);
      ASSERT_TRUE(one.job.running && seen.insert(id).second);
      one.job.running = false;
      one.job.fed = 0;
    }
    for (const Feed& feed : plan.feeds) {
      ASSERT_TRUE(seen.insert(feed.id).second);
      Simulated& one = all_.at(feed.id);
      Job& job = one.job;
      ASSERT_GE(feed.tokens, 1);
      ASSERT_LE(feed.tokens, job.known - job.fed);
      ASSERT_EQ(feed.draws, feed.tokens == job.known - job.fed);
      ASSERT_LE(feed.drafts, feed.draws ? job.drafts : 0);
      if (job.running && job.known - job.fed == 1) {
        someone_writes = true;
      } else {
        prompt_tokens += feed.tokens;
      }
      tokens += feed.tokens + feed.drafts;
      if (feed.draws) outputs += 1 + feed.drafts;
    }
    // A generating request must be fed unless it needs a page and none is free.
    for (const auto& [id, one] : all_) {
      const bool writes = one.job.running && one.job.known - one.job.fed == 1;
      ASSERT_TRUE(!writes || feed_of(plan, id) != nullptr || one.job.fed % kPageTokens == 0);
    }
    for (auto& [id, one] : all_) {
      const Feed* feed = feed_of(plan, id);
      if (feed == nullptr) {
        if (!one.job.running) ++one.job.waited;
        continue;
      }
      one.job.running = true;
      one.job.fed += feed->tokens;
      // Only some of the drafts are accepted.
      if (feed->draws) {
        const std::int64_t kept = below(feed->drafts + 1);
        one.job.fed += kept;
        one.job.known += kept + 1;
      }
    }
    ASSERT_LE(tokens, budget.tokens);
    ASSERT_LE(outputs, budget.outputs);
    if (someone_writes) {
      ASSERT_LE(prompt_tokens, std::max<std::int64_t>(1, budget.prompt_tokens));
    }
    ASSERT_LE(held(), pool_);
    ASSERT_LE(std::ranges::count_if(all_, [](const auto& one) { return one.second.job.running; }),
              budget.sequences);
    std::erase_if(all_, [](const auto& one) { return one.second.job.known >= one.second.end; });
  }

  Random random_;
  StepBudget budget_;
  std::int64_t pool_, kept_;
  RequestId next_id_ = 0;
  std::map<RequestId, Simulated> all_;
};

// Whatever requests arrive in whatever order, all are completed within a simple bound on the number
// of steps: no request waits forever, and no page is leaked.
TEST(Scheduler, RandomSchedulesKeepTheirBudgetsAndEnd) {
  for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
    Random random(seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random.uniform() * static_cast<double>(n)) % n;
    };
    StepBudget budget;
    budget.sequences = static_cast<int>(1 + below(4));
    budget.tokens = budget.sequences + below(200);
    budget.prompt_tokens = 1 + below(budget.tokens);
    budget.outputs = budget.sequences + below(6);
    const std::int64_t pool = 1 + below(6);
    // With a sliding window, a text may be longer than all pages together.
    const std::int64_t kept = pool < 4 || seed % 2 == 0 ? 0 : kPageTokens;
    if (kept > 0) budget.tokens = std::min<std::int64_t>(budget.tokens, 2 * kPageTokens);
    const std::int64_t longest = (kept == 0 ? 1 : 3) * pool * kPageTokens;
    Simulation simulation(seed, budget, pool, kept);
    const std::int64_t requests = 1 + below(6);
    std::int64_t work = 0;
    for (std::int64_t i = 0; i < requests; ++i) {
      const std::int64_t prompt = 1 + below(longest - 1);
      const std::int64_t reply = 1 + below(std::min<std::int64_t>(20, longest - prompt));
      simulation.add(static_cast<int>(below(3)), prompt, reply);
      work += prompt + reply;
      for (std::int64_t step = below(4); step > 0 && !simulation.done(); --step) {
        simulation.step();
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
      }
    }
    // Each eviction repeats at most the work of one request, and between two evictions of the same
    // request some other request ends.
    const std::int64_t bound = (requests + 1) * (work + requests) + 10;
    std::int64_t steps = 0;
    for (; !simulation.done() && steps <= bound; ++steps) {
      simulation.step();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    }
    ASSERT_LE(steps, bound) << "seed " << seed;
  }
}

Job prompt_of(RequestId id, std::int64_t tokens) {
  Job job;
  job.id = id;
  job.known = tokens;
  job.max_pages = pages_of(tokens + 1);
  return job;
}

Job writer_of(RequestId id, std::int64_t known) {
  Job job = prompt_of(id, known);
  job.running = true;
  job.fed = known - 1;
  job.pages = job.own_pages = pages_of(job.fed);
  return job;
}

TEST(Scheduler, PromptsShareStepsWithGeneratingRequests) {
  const std::vector<Job> jobs = {writer_of(0, 100), prompt_of(1, 2048), writer_of(2, 30)};
  const StepPlan plan = plan_step(
      jobs, {.sequences = 4, .tokens = 512, .prompt_tokens = 48, .outputs = 4, .pages = 100});
  ASSERT_EQ(plan.feeds.size(), 3u);
  EXPECT_EQ(feed_of(plan, 0)->tokens, 1);
  EXPECT_TRUE(feed_of(plan, 2)->draws);
  EXPECT_EQ(feed_of(plan, 1)->tokens, 48);
  EXPECT_FALSE(feed_of(plan, 1)->draws);
  // No request is generating, so the prompt gets the whole step.
  EXPECT_EQ(plan_step(std::vector{jobs[1]}, {.tokens = 512, .prompt_tokens = 48, .pages = 100})
                .feeds[0]
                .tokens,
            512);
}

TEST(Scheduler, PromptsPerWriterCountsPromptsThatCouldRun) {
  const auto crowd = [](int writers, int readers, int waiting, int sequences) {
    std::vector<Job> jobs;
    for (int i = 0; i < writers; ++i) jobs.push_back(writer_of(std::ssize(jobs), 100));
    for (int i = 0; i < readers + waiting; ++i) {
      jobs.push_back(prompt_of(std::ssize(jobs), 2048));
      jobs.back().running = i < readers;
    }
    return prompts_per_writer(jobs, sequences);
  };
  EXPECT_EQ(crowd(15, 1, 0, 16), 1);  // one prompt among many
  EXPECT_EQ(crowd(2, 2, 0, 16), 1);
  EXPECT_EQ(crowd(2, 3, 0, 16), 1.5);
  EXPECT_EQ(crowd(2, 1, 3, 16), 2);
  EXPECT_EQ(crowd(2, 1, 3, 4), 1);  // a request without a sequence is not fed
  EXPECT_EQ(crowd(1, 60, 0, 64), kMaxPromptsPerWriter);
  EXPECT_EQ(crowd(0, 2, 0, 64), 2);
}

TEST(Scheduler, TheFirstToComeIsNotPassedBySmallerOnes) {
  const std::vector<Job> jobs = {writer_of(0, 65), prompt_of(1, 600), prompt_of(2, 10)};
  const StepPlan plan = plan_step(
      jobs, {.sequences = 4, .tokens = 512, .prompt_tokens = 512, .outputs = 4, .pages = 9});
  EXPECT_EQ(feed_of(plan, 1), nullptr);  // needs 10 pages, in addition to the generating request
  EXPECT_EQ(feed_of(plan, 2), nullptr);
  Job urgent = jobs[2];
  urgent.priority = 1;
  const StepPlan other =
      plan_step(std::vector{jobs[0], jobs[1], urgent},
                {.sequences = 4, .tokens = 512, .prompt_tokens = 512, .outputs = 4, .pages = 9});
  EXPECT_NE(feed_of(other, 2), nullptr);
}

TEST(Scheduler, WaitingRaisesThePriority) {
  Job patient = prompt_of(0, 8), urgent = prompt_of(1, 8);
  urgent.priority = 2;
  const StepBudget budget = {.sequences = 1, .tokens = 64, .outputs = 1, .pages = 4};
  EXPECT_EQ(plan_step(std::vector{patient, urgent}, budget).feeds[0].id, 1);
  patient.waited = 2 * kAgingSteps;
  EXPECT_EQ(plan_step(std::vector{patient, urgent}, budget).feeds[0].id, 0);
}

TEST(Scheduler, EvictsTheLatestRequest) {
  const std::vector<Job> jobs = {writer_of(0, 65), writer_of(1, 65), writer_of(2, 200)};
  const StepPlan plan = plan_step(jobs, {.sequences = 3, .tokens = 64, .outputs = 3, .pages = 1});
  EXPECT_EQ(plan.evicted, std::vector<RequestId>{2});
  EXPECT_NE(feed_of(plan, 0), nullptr);
  EXPECT_NE(feed_of(plan, 1), nullptr);
}

TEST(Scheduler, DraftsTakeOnlyWhatIsLeft) {
  Job first = writer_of(0, 64), second = writer_of(1, 60);
  first.drafts = second.drafts = 8;
  // The step may have three rows with outputs, one more than the generating requests need.
  StepPlan plan = plan_step(std::vector{first, second},
                            {.sequences = 2, .tokens = 64, .outputs = 3, .pages = 4});
  EXPECT_EQ(feed_of(plan, 0)->drafts, 1);
  EXPECT_EQ(feed_of(plan, 1)->drafts, 0);
  // No page is free: the first request's page is full (64 positions), the second's has 60 of 64.
  plan = plan_step(std::vector{first, second},
                   {.sequences = 2, .tokens = 64, .outputs = 64, .pages = 0});
  EXPECT_EQ(feed_of(plan, 0)->drafts, 0);
  EXPECT_EQ(feed_of(plan, 1)->drafts, 4);
}

TEST(Scheduler, TheFirstRequestIsUnfitIfNothingElseCanBeDone) {
  const Job writer = writer_of(0, 65);  // needs a second page
  Job urgent = prompt_of(2, 10);
  urgent.priority = 1;
  const StepBudget budget = {.sequences = 2, .tokens = 64, .outputs = 2, .pages = 0};
  const auto unfit = [&](std::vector<Job> jobs) { return plan_step(jobs, budget).unfit; };
  EXPECT_EQ(unfit({writer, urgent}), 0) << "a running request is the first";
  EXPECT_EQ(unfit({prompt_of(1, 10), urgent}), 2);
  EXPECT_EQ(unfit({writer, writer_of(1, 65)}), std::nullopt) << "the second is evicted";
  EXPECT_EQ(unfit({}), std::nullopt);
}

TEST(Scheduler, ASharedLastPageIsCounted) {
  Job job = writer_of(0, 60);
  job.shares_last_page = true;
  Job other = writer_of(1, 60);
  const StepPlan plan =
      plan_step(std::vector{job, other}, {.sequences = 2, .tokens = 64, .outputs = 2, .pages = 0});
  EXPECT_EQ(plan.evicted, std::vector<RequestId>{1});
  EXPECT_NE(feed_of(plan, 0), nullptr);
}

// A chunk ends at the mark where a state is kept; before it, at the end of a page if it reaches
// one.
TEST(Scheduler, ChunksEndAtMarksAndAtPages) {
  const auto chunk = [](std::int64_t fed, std::int64_t mark, std::int64_t tokens) {
    Job job = prompt_of(0, 300);
    job.running = true;
    job.fed = fed;
    job.pages = job.own_pages = pages_of(fed);
    job.mark = mark;
    const StepPlan plan = plan_step({&job, 1}, {.tokens = tokens, .outputs = 1, .pages = 9});
    return plan.feeds.at(0).tokens;
  };
  EXPECT_EQ(chunk(0, 200, 512), 200);
  EXPECT_EQ(chunk(200, 0, 512), 100) << "no further mark";
  EXPECT_EQ(chunk(10, 200, 100), 54) << "to position 64";
  EXPECT_EQ(chunk(10, 200, 54), 54);
  EXPECT_EQ(chunk(10, 200, 53), 53) << "no page ends in the chunk";
  EXPECT_EQ(chunk(150, 200, 50), 50) << "the mark is reached";
  EXPECT_EQ(chunk(0, 0, 100), 100) << "without a mark chunks are as long as they can be";
}

// A text whose cached beginning ends inside a page needs that page and a copy of it.
TEST(Scheduler, AWaitingRequestNeedsTheCopyOfItsLastPage) {
  Job job = prompt_of(0, 62);
  job.fed = 60;
  job.pages = 1;
  job.shares_last_page = true;
  const auto admitted = [&](std::vector<Job> jobs, std::int64_t pages) {
    const StepPlan plan =
        plan_step(jobs, {.sequences = 2, .tokens = 64, .outputs = 2, .pages = pages});
    return feed_of(plan, 0) != nullptr;
  };
  EXPECT_FALSE(admitted({job}, 1));
  EXPECT_TRUE(admitted({job}, 2));
  // Beside a running request only if there is place for both to their next tokens.
  Job other = writer_of(1, 60);
  other.max_pages = 2;
  EXPECT_FALSE(admitted({job, other}, 2));
  EXPECT_TRUE(admitted({job, other}, 3));
  job.shares_last_page = false;
  EXPECT_TRUE(admitted({job, other}, 2));
}

TEST(Scheduler, WithoutARowOfLogitsTheLastTokenWaits) {
  Job reader = prompt_of(1, 10);
  const std::vector<Job> jobs = {writer_of(0, 20), reader};
  const StepPlan plan = plan_step(
      jobs, {.sequences = 2, .tokens = 64, .prompt_tokens = 64, .outputs = 1, .pages = 4});
  EXPECT_TRUE(feed_of(plan, 0)->draws);
  ASSERT_NE(feed_of(plan, 1), nullptr);
  EXPECT_EQ(feed_of(plan, 1)->tokens, 9);
  EXPECT_FALSE(feed_of(plan, 1)->draws);
}

// The order is that of priorities, and a request that has its tokens in this step is not evicted.
TEST(Scheduler, EvictsTheLeastUrgent) {
  std::vector<Job> jobs = {writer_of(0, 65), writer_of(1, 65), writer_of(2, 65)};
  jobs[2].priority = 1;
  const StepPlan plan = plan_step(jobs, {.sequences = 3, .tokens = 64, .outputs = 3, .pages = 1});
  EXPECT_EQ(plan.evicted, std::vector<RequestId>{1});
  EXPECT_NE(feed_of(plan, 2), nullptr);
  EXPECT_NE(feed_of(plan, 0), nullptr);
}

}  // namespace
}  // namespace leq
