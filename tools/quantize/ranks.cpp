#include "tools/quantize/ranks.h"

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/ranks.h"
#include "ranks/communicator.h"
#include "runtime/runtime.h"
#include "tools/common/rank_choice.h"

namespace leq {
namespace {

// Returns the same job without messages and progress, which only the leader prints.
QuantizeJob follower_of(const QuantizeJob& job, Communicator& ranks, int threads) {
  QuantizeJob own = job;
  own.checkpoint.ranks = &ranks;
  own.checkpoint.threads = threads;
  own.checkpoint.stop = [] { return false; };
  own.checkpoint.say = [](const auto&) {};
  own.progress = [](auto, auto, auto, const auto&) {};
  return own;
}

void run_as_process(const QuantizeJob& job) {
  const std::unique_ptr<Communicator> ranks = make_mpi_rank({});
  if (!ranks->leads()) {
    run_job(follower_of(job, *ranks, job.checkpoint.threads));
    throw FollowerDone();
  }
  QuantizeJob own = job;
  own.checkpoint.ranks = ranks.get();
  run_job(own);
}

// The destructor joins the threads even if the leader throws; the leader's abort ends them.
class Followers {
 public:
  Followers(ThreadRanks& ranks, const QuantizeJob& job, int threads) : leader_(ranks[0]) {
    for (int rank = 1; rank < ranks.size(); ++rank) {
      Communicator& own = ranks[rank];
      const int share = threads_of_rank(threads, rank, ranks.size());
      threads_.emplace_back([&own, &job, share] {
        try {
          run_job(follower_of(job, own, share));
        } catch (const Error& error) {
          own.abort(error);  // the leader reports the error
        } catch (const std::exception& error) {
          own.abort(rank_error(own, Error(error.what(), ErrorKind::no_memory)));
        }
      });
    }
  }
  ~Followers() {
    leader_.abort(Error("the leader is gone", ErrorKind::interrupted));
    for (std::thread& thread : threads_) thread.join();
  }
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

 private:
  Communicator& leader_;
  std::vector<std::thread> threads_;
};

}  // namespace

void run_job_on_ranks(const Options& options, const QuantizeJob& job) {
  const int count = rank_count(options);
  require_divisible(job, count);  // checked here once, instead of by every rank
  if (ranks_are_processes(count, "cpu")) return run_as_process(job);
  if (count == 1) {
    run_job(job);
    return;
  }
  const int threads = job.checkpoint.threads > 0 ? job.checkpoint.threads : usable_cores();
  ThreadRanks ranks(count, thread_rank_options(threads, count));
  QuantizeJob own = job;
  own.checkpoint.ranks = &ranks[0];
  own.checkpoint.threads = threads_of_rank(threads, 0, count);
  const Followers others(ranks, job, threads);
  run_job(own);
}

}  // namespace leq
