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
#include "tools/common/device_choice.h"

namespace leq {
namespace {

void quantize_as(const QuantizeCommand& command, Communicator& ranks, int threads) {
  QuantizeOptions own = command.options;
  own.ranks = &ranks;
  own.threads = threads;
  if (!ranks.leads()) {  // messages and progress are the leader's
    own.stop = [] { return false; };
    own.say = [](const auto&) {};
    own.progress = [](auto, auto, auto, const auto&) {};
  }
  quantize_checkpoint(command.checkpoint, command.output, own);
}

// The destructor joins the threads even if the leader throws; the leader's abort ends them.
class Followers {
 public:
  Followers(ThreadRanks& ranks, const QuantizeCommand& command, int threads) : leader_(ranks[0]) {
    for (int rank = 1; rank < ranks.size(); ++rank) {
      Communicator& own = ranks[rank];
      const int share = threads_of_rank(threads, rank, ranks.size());
      threads_.emplace_back([&own, &command, share] {
        try {
          quantize_as(command, own, share);
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

void quantize_on_ranks(const Options& options, const QuantizeCommand& command) {
  const int count = rank_count(options);
  const int given = command.options.threads;
  require_divisible(command.options, count);  // checked here once, instead of by every rank
  if (ranks_are_processes(count, "cpu")) {
    const std::unique_ptr<Communicator> ranks = make_mpi_rank({});
    quantize_as(command, *ranks, given);
    if (!ranks->leads()) throw FollowerDone();
    return;
  }
  if (count == 1) return quantize_as(command, one_rank(), given);
  const int threads = given > 0 ? given : usable_cores();
  ThreadRanks ranks(count, thread_rank_options(threads, count));
  const Followers others(ranks, command, threads);
  quantize_as(command, ranks[0], threads_of_rank(threads, 0, count));
}

}  // namespace leq
